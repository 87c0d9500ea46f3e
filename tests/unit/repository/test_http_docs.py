"""The pages on HTTP: their limits, formats and statuses are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from slackwater.deployment.parse import load_deployment
from slackwater.proxy import pushed, remembered, requests
from slackwater.proxy.http import app, parts, senml, server
from slackwater.proxy.http.bodies import MEDIA_TYPES

ROOT = Path(__file__).parents[3]
HOWTO = (ROOT / "docs/howto/send-over-http.md").read_text()
FILE = (ROOT / "docs/deployment-file.md").read_text()
SECTION = FILE[FILE.index("### Readings over HTTP") : FILE.index("## A query\n")]


def test_the_limits_are_those_of_the_code() -> None:
    listed = {
        name: int(value.replace(",", ""))
        for name, value in re.findall(r"^\| `(\w+)` \| ([0-9,]+) \|", SECTION, re.MULTILINE)
    }
    assert listed == {
        "body_bytes_max": app.BODY_BYTES_MAX,
        "unpacked_bytes_max": app.UNPACKED_BYTES_MAX,
        "readings_max": parts.READINGS_MAX,
        "senml_bytes_max": senml.BYTES_MAX,
        "bodies_bytes_max": app.BODIES_BYTES_MAX,
        "waiting_max": requests.WAITING_MAX,
        "body_s_max": app.BODY_S_MAX,
        "headers_s_max": server.HEADERS_S_MAX,
        "header_bytes_max": app.HEADER_BYTES_MAX,
        "connections_max": server.CONNECTIONS_MAX,
    }
    assert f"| `keys_max`, `keys_s_max` | {remembered.KEYS_MAX:,}, 86,400 |" in SECTION
    assert remembered.KEYS_US_MAX == 86_400 * 1_000_000
    assert f"at most {remembered.KEY_CHARS_MAX} characters" in HOWTO
    assert f"newest {remembered.KEYS_MAX:,}" in HOWTO
    assert pushed.ERRORS_MAX == 20


def test_the_formats_are_those_of_the_code() -> None:
    table = HOWTO[HOWTO.index("## Formats") :]
    assert set(re.findall(r"^\| `([a-z+./-]+)` \|", table, re.MULTILINE)) == set(MEDIA_TYPES)


def test_the_deployments_shown_are_valid(tmp_path: Path) -> None:
    for text in (HOWTO, SECTION):
        (shown,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
        path = tmp_path / "shown.yaml"
        path.write_text(shown)
        assert load_deployment(path).streams["room-1"].http is not None


def test_each_status_of_the_code_is_on_the_page() -> None:
    listed = {int(status) for status in re.findall(r"^\| (\d{3}) \|", HOWTO, re.MULTILINE)}
    folder = ROOT / "services/slackwater/proxy"
    source = "".join(
        path.read_text()
        for path in [folder / "pushed.py", folder / "requests.py", *folder.glob("http/*.py")]
    )
    used = re.findall(r"(?:Refusal|Outcome)\(\s*(\d{3})|UnusableBody\([^)]*, (\d{3})\)", source)
    statuses = {int(number) for pair in used for number in pair if number} | app.REASONS.keys()
    # For headers alone, which no client of the formats sends.
    assert statuses - {431} == listed
