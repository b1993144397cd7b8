/** The part of the address after `#` names the view. So links are plain links, and the browser's history works. */

export type Route =
    | { view: "cameras" }
    | { view: "camera"; camera: string }
    | { view: "history"; camera: string }
    | { view: "applications" }
    | { view: "site" };

export function parseRoute(hash: string): Route {
    const path = hash.replace(/^#\/?/, "");
    if (path === "applications") return { view: "applications" };
    if (path === "site") return { view: "site" };
    const [view, ...name] = path.split("/");
    if ((view === "camera" || view === "history") && name.length > 0) return { view, camera: name.map(decoded).join("/") };
    return { view: "cameras" };
}

/** The address of a camera's view. */
export const cameraHref = (camera: string): string => `#/camera/${escaped(camera)}`;

/** The address of the view of a camera's past. */
export const historyHref = (camera: string): string => `#/history/${escaped(camera)}`;

const escaped = (camera: string): string => camera.split("/").map(encodeURIComponent).join("/");

function decoded(part: string): string {
    try {
        return decodeURIComponent(part);
    } catch {
        return part;
    }
}

/** The token of a one-time link, `#token=…`, or `null`. */
export function tokenIn(hash: string): string | null {
    return new URLSearchParams(hash.replace(/^#/, "")).get("token");
}
