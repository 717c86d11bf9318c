"""Images and PDFs: checks of what providers take, and images that are made to fit it."""

from nova_workers.base.media.checks import MAX_IMAGE_PIXELS, MEDIA_TYPES, bytes_problem, media_problem, media_type_of
from nova_workers.base.media.scaling import MOST_PIXELS, with_scaled_images

__all__ = [
    "MAX_IMAGE_PIXELS",
    "MEDIA_TYPES",
    "MOST_PIXELS",
    "bytes_problem",
    "media_problem",
    "media_type_of",
    "with_scaled_images",
]
