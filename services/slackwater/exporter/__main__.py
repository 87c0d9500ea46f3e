"""Entry point: ``python -m slackwater.exporter``."""

from slackwater.exporter.app import add_arguments, main
from slackwater.runtime.service.entry import run

run("exporter", main, add_arguments=add_arguments)
