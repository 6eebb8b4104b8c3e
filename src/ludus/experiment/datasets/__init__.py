"""Datasets: episodes on disk that are learnt from, whatever they were made from."""
