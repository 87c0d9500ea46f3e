"""Entry point: ``python -m slackwater.root``."""

from slackwater.root.app import main
from slackwater.runtime.entry import run

run("root", main)
