"""Figures of many processes: windows of time that are joined."""
