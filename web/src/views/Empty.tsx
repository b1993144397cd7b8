/** A site without cameras: what to do next. */

import { Copy } from "../parts/Copy.tsx";

export function Empty() {
    const host = location.hostname;
    return (
        <section class="empty" aria-labelledby="empty">
            <h1 id="empty">No camera yet</h1>
            <p>This page shows each camera as soon as it is connected. Two steps connect one:</p>
            <ol>
                <li>
                    <p>On this edge’s host, make a token. It is valid once, for an hour.</p>
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
            <p>On the edge’s own host neither the token nor “mez keys enrol” is needed. A Python program can be a camera, too:</p>
            <Copy
                title="Camera in Python"
                text={`import mez\nwith mez.publisher("dock/cam1", edge="${host}") as camera:\n    camera.send(image)      # an array of shape (height, width, 3), BGR`}
            />
            <p>
                You expected cameras here? You see those that your identity was granted to observe. On the edge’s host, “mez keys grants”
                lists grants.
            </p>
        </section>
    );
}
