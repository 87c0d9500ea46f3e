"""Client library: follows the three result topics of a query as one stream."""

from slackwater.client.answers import BestAnswers, Measures, Reading, RecDone, Undone, WindowAnswer
from slackwater.client.follow import Client, Follow

__all__ = [
    "BestAnswers",
    "Client",
    "Follow",
    "Measures",
    "Reading",
    "RecDone",
    "Undone",
    "WindowAnswer",
]
