"""An application that takes its frames too late, the state of its contract then, and what helps.

    python late.py dock/cam1 --edge edge.local

It asks for frames that are at most 50 ms old, and works 270 ms on each. The newest frame has then waited for
it, often for longer than the bound. Mez does not make frames smaller for that, because it would not help.
"""

import argparse
import time

import mez

parser = argparse.ArgumentParser(description="Take frames too late, and see what the contract says.")
parser.add_argument("camera", help="its name, such as dock/cam1")
parser.add_argument("--edge", help="the edge broker's host [this one]")
parser.add_argument("--latency-ms", type=float, default=50.0, help="the latency bound [50]")
parser.add_argument("--work-ms", type=float, default=270.0, help="how long it works on a frame [270]")
parser.add_argument("--frames", type=int, default=100, help="when to end at the latest [100]")
options = parser.parse_args()

bound, state = options.latency_ms, None
with mez.subscribe(options.camera, edge=options.edge, latency_ms=bound, timeout=10) as frames:
    for frame in frames:
        time.sleep(options.work_ms / 1000)  # here a detector would work
        if frame.contract.state != state:
            state = frame.contract.state
            print(f"{frame.camera}: {frame.contract}", flush=True)
        if state == "application_late" and bound == options.latency_ms:
            # A faster detector helps, and so does a larger bound.
            bound += 1000
            print(f"Use a faster detector, or a larger bound. The bound is {bound:.0f} ms now.", flush=True)
            frames.update(latency_ms=bound)
        if state == "ok" and bound != options.latency_ms:
            break
        if frames.delivered >= options.frames:
            print(f"The state is {state} after {frames.delivered} frames. If it is ok, raise --work-ms.")
            break
