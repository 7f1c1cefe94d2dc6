"""Streams in `asyncio`."""

import asyncio


async def next_chunk(stream):
    """Returns the next chunk of a stream, which a thread waits for. A cancelled task cancels the request."""
    try:
        chunk = await asyncio.to_thread(next, stream, None)
    except BaseException:
        stream.cancel()
        raise
    if chunk is None:
        raise StopAsyncIteration
    return chunk
