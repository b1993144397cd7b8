/** The edge's stream of events. */

import type { EdgeEvent } from "./types.ts";

/**
 * Hears events until the function that is returned is called. The browser connects again by itself, and then gets what it missed.
 * After a new call the edge tells its newest events again; their ids are the same. `closed`: the edge refused, so the browser does not try again.
 */
export function hear(heard: (event: EdgeEvent) => void, closed: () => void): () => void {
    const stream = new EventSource("/api/v1/events");
    stream.onmessage = (message: MessageEvent<string>) => heard(JSON.parse(message.data) as EdgeEvent);
    stream.onerror = () => {
        if (stream.readyState === EventSource.CLOSED) closed();
    };
    return () => stream.close();
}
