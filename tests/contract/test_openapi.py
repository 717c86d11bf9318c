"""The OpenAPI document: what it lists, and that the API behaves as it says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings as hypothesis_settings
from inline_snapshot import snapshot
