/** All cameras: picture, age, contracts. */

import { useState } from "preact/hooks";

import type { Camera } from "../api/types.ts";
import { Badge } from "../parts/Badge.tsx";
import { Picture } from "../parts/Picture.tsx";
import { usePage } from "../parts/use.ts";
import { cameraHref } from "../state/route.ts";
import { meaningOf, SOURCE, worst, type Level } from "../words/states.ts";
import * as units from "../words/units.ts";
import { Empty } from "./Empty.tsx";

/** The state of a camera in a word: of the camera and its source if they have a problem, else of its worst contract. */
export function standing(camera: Camera): { level: Level; word: string; title: string } {
    if (!camera.connected) {
        const word = camera.derived_from.length > 0 ? "not published" : "camera absent";
        return { level: "bad", word, title: "Not connected to the edge." };
    }
    if (camera.source && camera.source.state !== "live") {
        const { level, word } = SOURCE[camera.source.state];
        return { level, word: `source ${word}`, title: camera.source.reason };
    }
    const meanings = camera.contracts.map((contract) => ({ ...meaningOf(contract.state), reason: contract.reason }));
    const level = worst(meanings.map((meaning) => meaning.level));
    const shown = meanings.find((meaning) => meaning.level === level);
    if (!shown) return { level: "off", word: "no application", title: "No application subscribes to this camera." };
    const allKept = meanings.length > 1 && camera.contracts.every(({ state }) => state === null || state === "ok");
    return {
        level,
        word: allKept && level === "good" ? "all contracts kept" : shown.word === "kept" ? "contract kept" : shown.word,
        title: shown.reason || shown.means,
    };
}

function matches(camera: Camera, wanted: string): boolean {
    return camera.name.toLowerCase().includes(wanted.trim().toLowerCase());
}

const SERIOUS: readonly Level[] = ["bad", "warn"];

function Tile({ camera }: { camera: Camera }) {
    const { level, word, title } = standing(camera);
    return (
        <li class={`tile ${level}`}>
            <Picture camera={camera} />
            <div class="caption">
                <h2>
                    <a href={cameraHref(camera.name)}>{camera.name}</a>
                </h2>
                <Badge level={level} word={word} title={title} />
                <p class="figures">
                    <span title="Published frames per second">{units.frameRate(camera.frames_per_second)}</span>
                    <span title="Payload rate on the link">{units.bitRate(camera.crossed_bits_per_second)}</span>
                    {camera.newest && (
                        <span class="rung" title="Rung (encoding) of the newest frame">
                            {camera.newest.rung}
                        </span>
                    )}
                </p>
            </div>
        </li>
    );
}

export function Grid({ kiosk }: { kiosk: boolean }) {
    const answer = usePage((page) => page.cameras);
    const [wanted, setWanted] = useState("");
    const [serious, setSerious] = useState(false);
    if (!answer) return null;
    if (answer.cameras.length === 0) return <Empty />;
    const cameras = answer.cameras.filter((camera) => matches(camera, wanted) && (!serious || SERIOUS.includes(standing(camera).level)));
    const columns = Math.ceil(Math.sqrt(cameras.length));
    const rows = Math.ceil(cameras.length / Math.max(1, columns));
    return (
        <>
            {kiosk && <h1 class="unseen">Cameras</h1>}
            {!kiosk && (
                <div class="tools">
                    <h1>Cameras</h1>
                    <Summary cameras={answer.cameras} />
                    <label>
                        Name <input type="search" value={wanted} onInput={(event) => setWanted(event.currentTarget.value)} />
                    </label>
                    <label>
                        <input type="checkbox" checked={serious} onChange={(event) => setSerious(event.currentTarget.checked)} /> only with
                        problems
                    </label>
                </div>
            )}
            {cameras.length === 0 && (
                <p>{serious ? "No camera with this name has a problem." : `No camera has “${wanted}” in its name.`}</p>
            )}
            <ul class="grid" style={kiosk ? { "--columns": String(columns), "--rows": String(rows) } : {}}>
                {cameras.map((camera) => (
                    <Tile key={camera.name} camera={camera} />
                ))}
            </ul>
        </>
    );
}

function Summary({ cameras }: { cameras: readonly Camera[] }) {
    const connected = cameras.filter((camera) => camera.connected).length;
    const problems = cameras.filter((camera) => SERIOUS.includes(standing(camera).level)).length;
    return (
        <p class="summary">
            {connected} of {units.counted(cameras.length, "camera")} connected,{" "}
            {problems === 0 ? "no problems" : `${problems} with problems`}
        </p>
    );
}
