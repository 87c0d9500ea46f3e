"""The format ``avro``: framed messages of one reading each, with the writer's schema by reference.

``schema`` compiles a writer's schema to a decoder of single messages, the definition; ``batch``
decodes many messages of one schema at a time; ``framing`` finds the schema's reference in a
message; ``sources`` gets schemas from a registry or from files; ``reader`` combines them.
"""
