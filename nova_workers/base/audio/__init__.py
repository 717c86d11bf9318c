"""Speech to text and text to speech, with the programs installed on the worker."""

from nova_workers.base.audio.speech import find_speaker
from nova_workers.base.audio.transcription import find_transcriber

__all__ = ["find_speaker", "find_transcriber"]
