"""Flows: who does what when. The same algorithm runs in each."""
