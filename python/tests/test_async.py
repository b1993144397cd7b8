"""`async for`, beside other tasks of an event loop."""

import asyncio
import threading

import pytest

import mez
from tests.support import deliver, number_of, picture


async def test_frames_come_to_a_task_while_others_run(edge: mez.Edge) -> None:
    """Waiting for a frame blocks nobody, and what comes is the newest."""
    with mez.publisher("cam", edge=edge) as camera, edge.subscribe("cam") as frames:
        await asyncio.to_thread(deliver, camera, frames)
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.001)

        async def publish() -> None:
            for number in range(1, 40):
                camera.send(picture(number))
                await asyncio.sleep(0.01)

        ticking, publishing = asyncio.create_task(tick()), asyncio.create_task(publish())
        last = 0
        async for frame in frames:
            assert number_of(frame.image) > last
            last = number_of(frame.image)
            if frame.sequence >= 38:
                break
        assert ticks > 10
        ticking.cancel()
        publishing.cancel()


async def test_frames_that_are_there_already_do_not_starve_other_tasks(edge: mez.Edge) -> None:
    """Reading the past never has to wait, and lets others run all the same."""
    with mez.publisher("cam", edge=edge) as camera:
        with edge.subscribe("cam", deliver="every") as frames:
            first = await asyncio.to_thread(deliver, camera, frames)
            for number in range(20):
                camera.send(picture(number))
                await asyncio.to_thread(frames.next, 30)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        numbers = [
            number_of(frame.image) async for frame in mez.read("cam", edge=edge, since=first.captured_ns)
        ]
        assert numbers == [0, *range(20)]
        assert turns > 20
        counting.cancel()


async def test_a_cancelled_wait_loses_nothing(edge: mez.Edge) -> None:
    """The next frame goes to whoever asks next, in a task or in a thread."""
    with mez.publisher("cam", edge=edge) as camera, edge.subscribe("cam", deliver="every") as frames:
        await asyncio.to_thread(deliver, camera, frames)
        for number in (5, 6):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await anext(frames)
            camera.send(picture(number))
            assert number_of((await asyncio.to_thread(frames.next, 30)).image) == number
        camera.send(picture(7))
        assert number_of((await anext(frames)).image) == 7


async def test_a_time_limit_per_frame(edge: mez.Edge) -> None:
    """As given to `subscribe`; the subscription goes on afterwards."""
    with edge.subscribe("cam", timeout=0.1) as frames:
        with pytest.raises(mez.WaitTimeoutError, match=r"no frame of cam within 0\.1 s"):
            await anext(frames)
        with mez.publisher("cam", edge=edge) as camera:
            await asyncio.to_thread(deliver, camera, frames)


async def test_closing_ends_a_waiting_task(edge: mez.Edge) -> None:
    """From the loop's own thread or from another."""
    for close_from_thread in (False, True):
        frames = edge.subscribe("cam")
        task = asyncio.create_task(anext(frames, None))
        await asyncio.sleep(0.05)
        if close_from_thread:
            threading.Thread(target=frames.close).start()
        else:
            frames.close()
        assert await asyncio.wait_for(task, 30) is None


async def test_two_tasks_cannot_share_a_subscription(edge: mez.Edge) -> None:
    """Each would take the other's frames; the second is told so."""
    with edge.subscribe("cam") as frames:
        waiting = asyncio.create_task(anext(frames, None))
        await asyncio.sleep(0.01)
        with pytest.raises(mez.Error, match="another task"):
            await anext(frames)
        waiting.cancel()
