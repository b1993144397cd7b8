/** A site without cameras: what to do next. */

import { Copy } from "../parts/Copy.tsx";

export function Empty() {
    const host = location.hostname;
    return (
        <section class="empty" aria-labelledby="empty">
            <h1 id="empty">No camera yet</h1>
            <p>This page shows each camera as soon as it is connected. To connect a camera:</p>
            <ol>
                <li>
                    <p>On this edge’s host, make a token. It works once, within an hour.</p>
                    <Copy title="Token for a camera" text="mez keys token camera/dock/cam1" />
                </li>
                <li>
                    <p>On the camera’s host, enrol with the token, and publish frames:</p>
                    <Copy
                        title="Camera"
                        text={`mez keys enrol TOKEN --edge ${host}\nmez camera dock/cam1 --edge ${host} --source /dev/video0`}
                    />
                </li>
            </ol>
            <p>On the edge’s own host, you need neither a token nor “mez keys enrol”. A Python program can also publish frames:</p>
            <Copy
                title="Camera in Python"
                text={`import mez\nwith mez.publisher("dock/cam1", edge="${host}") as camera:\n    camera.send(image)      # an array of shape (height, width, 3), BGR`}
            />
            <p>
                If you expected cameras here: you see only cameras that your identity may observe. On the edge’s host, “mez keys grants”
                lists the grants.
            </p>
        </section>
    );
}
