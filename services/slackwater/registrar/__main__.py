"""Entry point: ``python -m slackwater.registrar``."""

from slackwater.registrar.app import main
from slackwater.runtime.service.entry import run_async

run_async("registrar", main)
