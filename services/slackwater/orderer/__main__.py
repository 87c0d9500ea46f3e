"""Entry point: ``python -m slackwater.orderer``."""

from slackwater.orderer.app import main
from slackwater.runtime.entry import run

run("orderer", main)
