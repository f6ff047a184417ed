"""Decides everything that the client does, without input or output.

Operations are generators. They yield steps, which `sync` and `aio` perform: they move bytes and sleep.
"""
