"""Entry point: ``python -m slackwater.host``."""

from slackwater.host.app import add_arguments, main
from slackwater.runtime.service.entry import run

run("host", main, add_arguments=add_arguments)
