"""Encodes and decodes the records of the model.

Records of the internal logs are Avro by the schemas in ``schemas/``, coded by column; results are
JSON (``results.py``). Damaged bytes raise ``MalformedRecordError``.
"""

from slackwater.codec.delta_records import decode_delta, encode_delta
from slackwater.codec.ordered_records import decode_ordered, encode_ordered
from slackwater.codec.pane_records import (
    decode_head,
    decode_merged,
    decode_pane,
    encode_head,
    encode_merged,
    encode_pane,
)
from slackwater.codec.schemas import SCHEMAS, fingerprint, older_versions, schema_json
from slackwater.codec.source_records import decode_source, encode_source
from slackwater.codec.state_records import (
    decode_heartbeat,
    decode_orderer_state,
    decode_registry,
    decode_root_state,
    encode_heartbeat,
    encode_orderer_state,
    encode_registry,
    encode_root_state,
)

__all__ = [
    "SCHEMAS",
    "decode_delta",
    "decode_head",
    "decode_heartbeat",
    "decode_merged",
    "decode_ordered",
    "decode_orderer_state",
    "decode_pane",
    "decode_registry",
    "decode_root_state",
    "decode_source",
    "encode_delta",
    "encode_head",
    "encode_heartbeat",
    "encode_merged",
    "encode_ordered",
    "encode_orderer_state",
    "encode_pane",
    "encode_registry",
    "encode_root_state",
    "encode_source",
    "fingerprint",
    "older_versions",
    "schema_json",
]
