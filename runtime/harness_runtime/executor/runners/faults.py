"""What to tell of an exception that a model raised: one short sentence, where in its own code, whether memory was short."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path
from typing import Final

import harness_runtime
from harness_runtime.executor.runners.base import DeviceLostError, ModelFaultError

MESSAGE_CHARS_MAX: Final = 500
_NATIVE_STACK: Final = ("\nException raised from", "\nCompile with", "\nTraceback of TorchScript")
FRAMES_MAX: Final = 10
_NOT_THE_MODELS: Final = (
    str(Path(harness_runtime.__file__).parent),
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    "<",
)
"""Where frames lie that say nothing of a model: ours, the standard library, installed packages, generated code."""
_OUT_OF_MEMORY: Final = ("out of memory", "can't allocate memory", "not enough memory")


def say(error: BaseException) -> str:
    """An exception as one sentence: its type where that says something, no native stack, bounded in length."""
    text = str(error)
    for mark in _NATIVE_STACK:
        text = text.split(mark, 1)[0]
    text = " ".join(text.split())
    if not isinstance(error, ModelFaultError | DeviceLostError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if len(text) <= MESSAGE_CHARS_MAX else text[: MESSAGE_CHARS_MAX - 1] + "…"


def own_frames(error: BaseException) -> str:
    """The innermost frames of the model's own files, as in a traceback; empty when there is none (torch's frames are no help)."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_NOT_THE_MODELS)
    ]
    return "".join(traceback.format_list(frames[-FRAMES_MAX:])).rstrip()


def is_out_of_memory(error: BaseException) -> bool:
    """True for lack of host or device memory, by type or, for torch's plain RuntimeErrors, by words."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _OUT_OF_MEMORY)
