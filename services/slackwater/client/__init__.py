"""Consumer library: follows results, merges the three topics in order, applies UNDO."""

from slackwater.client.answers import (
    BestAnswers,
    CorrectionsDone,
    Measures,
    ResultReading,
    Undone,
    WindowAnswer,
)
from slackwater.client.follow import Client, Follow
from slackwater.primitives.keyparts import part_of

__all__ = [
    "BestAnswers",
    "Client",
    "CorrectionsDone",
    "Follow",
    "Measures",
    "ResultReading",
    "Undone",
    "WindowAnswer",
    "part_of",
]
