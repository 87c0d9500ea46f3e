"""Client library: follows the three result topics of a query as one stream."""

from slackwater.client.answers import (
    BestAnswers,
    CorrectionsDone,
    Measures,
    ResultReading,
    Undone,
    WindowAnswer,
)
from slackwater.client.follow import Client, Follow

__all__ = [
    "BestAnswers",
    "Client",
    "CorrectionsDone",
    "Follow",
    "Measures",
    "ResultReading",
    "Undone",
    "WindowAnswer",
]
