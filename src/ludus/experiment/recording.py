"""Episodes as an animated GIF.

recording = Recording(fps=50)
recording.add(frame)
recording.save(Path("trained.gif"))
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus import errors

__all__ = ["Recording"]

_MOST_FPS = 25.0  # viewers slow down GIFs that want more
_MOST_WIDTH = 360
_MOST_FRAMES = 1500  # a minute: what goes on for longer is cut
_NUM_COLOURS = 64
_LAST_FRAME_MS = 1200


class Recording:
    """Takes frames as they are played, `fps` of them a second, and keeps few and small enough for a page to show.

    Raises `MissingExtra` without Pillow.
    """

    def __init__(self, *, fps: float) -> None:
        try:
            import PIL.Image
        except ImportError:
            raise errors.MissingExtra("pillow", extra="train") from None
        self._image: Any = PIL.Image
        self._every = max(1, round(fps / _MOST_FPS))
        self._frame_ms = 1000.0 * self._every / fps
        self._num_seen = 0
        self._images: list[Any] = []
        self._durations: list[int] = []

    def add(self, frame: NDArray[np.uint8], *, is_last: bool = False) -> None:
        """The next frame. The last of an episode is always kept, and shown for longer."""
        is_kept = is_last or self._num_seen % self._every == 0
        self._num_seen += 1
        if not is_kept or len(self._images) >= _MOST_FRAMES:
            return
        image = self._image.fromarray(frame)
        if image.width > _MOST_WIDTH:
            size = (_MOST_WIDTH, round(image.height * _MOST_WIDTH / image.width))
            image = image.resize(size, self._image.Resampling.BOX)
        quickly = self._image.Quantize.FASTOCTREE  # it is done while somebody watches
        self._images.append(image.quantize(_NUM_COLOURS, method=quickly, dither=self._image.Dither.NONE))
        self._durations.append(_LAST_FRAME_MS if is_last else max(20, round(self._frame_ms / 10) * 10))

    def save(self, path: Path) -> Path:
        """Write it, to go on for ever, and return the path."""
        if not self._images:
            raise errors.TrainingError(f"there is nothing to write to {path}: no frame was recorded.")
        first, *others = self._images
        path.parent.mkdir(parents=True, exist_ok=True)
        first.save(path, format="GIF", save_all=True, append_images=others, duration=self._durations, loop=0)
        return path
