"""What a training run keeps of all that was collected, and how it draws from it."""

from __future__ import annotations
