/** One camera: its state now with the reasons, and the last five minutes. */

import { useState } from "preact/hooks";

import type { Camera as CameraInfo, Contract } from "../api/types.ts";
import { Badge, Sign } from "../parts/Badge.tsx";
import { Copy } from "../parts/Copy.tsx";
import { Facts, type Fact } from "../parts/Facts.tsx";
import { Picture } from "../parts/Picture.tsx";
import { usePage } from "../parts/use.ts";
import { cameraHref, historyHref } from "../state/route.ts";
import { isThisHost, snippets } from "../words/snippets.ts";
import { meaningOf, skippedInWords } from "../words/states.ts";
import * as units from "../words/units.ts";
import { whyNow } from "../words/why.ts";
import { standing } from "./Grid.tsx";
import { Timelines } from "./Timelines.tsx";

const RANK = ["bad", "warn", "good", "off"] as const;

/** The contract that is shown first: the one in the worst state, preferably with an accuracy floor. */
function first(contracts: readonly Contract[]): Contract | undefined {
    const rank = (contract: Contract): number =>
        RANK.indexOf(meaningOf(contract.state).level) * 2 + (contract.accuracy_floor === null ? 1 : 0);
    return [...contracts].sort((a, b) => rank(a) - rank(b))[0];
}

export function Camera({ name }: { name: string }) {
    const answer = usePage((page) => page.cameras);
    const [chosen, setChosen] = useState<number | null>(null);
    if (!answer) return null;
    const camera = answer.cameras.find((one) => one.name === name);
    if (!camera) {
        return (
            <section>
                <h1>{name}</h1>
                <p>The edge has no camera of this name, or your identity may not observe it.</p>
                <p>
                    <a href="#/">All cameras</a>
                </p>
            </section>
        );
    }
    const contract = camera.contracts.find((one) => one.subscription === chosen) ?? first(camera.contracts);
    const { level, word, title } = standing(camera);
    return (
        <article class="camera">
            <header class="tools">
                <h1>{camera.name}</h1>
                <Badge level={level} word={word} title={title} />
                <a href={historyHref(camera.name)}>History</a>
                {camera.derived_from.length > 0 && (
                    <p class="summary">
                        derived from{" "}
                        {camera.derived_from.map((source) => (
                            <a key={source} href={cameraHref(source)}>
                                {source}
                            </a>
                        ))}
                    </p>
                )}
            </header>
            <div class="now">
                <Picture camera={camera} />
                <Why camera={camera} />
            </div>
            <Contracts camera={camera} chosen={contract} choose={setChosen} />
            <Timelines camera={camera} contract={contract} />
            <section aria-labelledby="figures">
                <h2 id="figures">Figures</h2>
                <Facts facts={figures(camera)} />
            </section>
            <section aria-labelledby="use">
                <h2 id="use">Use this camera</h2>
                <Use camera={camera.name} />
            </section>
        </article>
    );
}

function Use({ camera }: { camera: string }) {
    const site = usePage((page) => page.site);
    if (!site) return null;
    const host = location.hostname;
    return (
        <>
            <p>
                {isThisHost(host)
                    ? "For programs on the edge’s host. For other hosts, open this page by the edge’s name or address in the network."
                    : site.grpc_port === null && "This edge accepts applications on its own host only."}
            </p>
            {snippets(camera, host, site).map((snippet) => (
                <Copy key={snippet.title} {...snippet} />
            ))}
            <p>
                All calls and fields of gRPC:{" "}
                <a href="/mez.proto" download>
                    mez.proto
                </a>
                . The data of this page, as JSON over HTTP:{" "}
                <a href="/openapi.json" download>
                    openapi.json
                </a>
                .
            </p>
        </>
    );
}

function Why({ camera }: { camera: CameraInfo }) {
    return (
        <section aria-labelledby="why">
            <h2 id="why">Why this quality now</h2>
            <ul class="why">
                {whyNow(camera).map(({ level, text }) => (
                    <li key={text} class={level}>
                        <Sign level={level} />
                        {text}
                    </li>
                ))}
            </ul>
        </section>
    );
}

interface ContractsProps {
    camera: CameraInfo;
    chosen: Contract | undefined;
    choose: (subscription: number) => void;
}

function Contracts({ camera, chosen, choose }: ContractsProps) {
    if (camera.contracts.length === 0) return null;
    return (
        <section aria-labelledby="contracts">
            <h2 id="contracts">Contracts</h2>
            <div class="scroll" tabIndex={0} role="region" aria-label="Contracts of applications on this camera">
                <table>
                    <thead>
                        <tr>
                            <th scope="col">Shown below</th>
                            <th scope="col">Application</th>
                            <th scope="col">State</th>
                            <th scope="col" class="number">
                                Latency p95
                            </th>
                            <th scope="col" class="number">
                                Bound
                            </th>
                            <th scope="col" class="number">
                                Accuracy
                            </th>
                            <th scope="col" class="number">
                                Floor
                            </th>
                            <th scope="col" class="number">
                                Rate
                            </th>
                            <th scope="col">Why</th>
                        </tr>
                    </thead>
                    <tbody>
                        {camera.contracts.map((contract) => (
                            <ContractRow key={contract.subscription} contract={contract} chosen={contract === chosen} choose={choose} />
                        ))}
                    </tbody>
                </table>
            </div>
        </section>
    );
}

function ContractRow({ contract, chosen, choose }: { contract: Contract; chosen: boolean; choose: (subscription: number) => void }) {
    const { level, word, means } = meaningOf(contract.state);
    const name = contract.application || `subscription ${contract.subscription}`;
    return (
        <tr>
            <td>
                <input
                    type="radio"
                    name="contract"
                    checked={chosen}
                    aria-label={`Show ${name} in the timelines`}
                    onChange={() => choose(contract.subscription)}
                />
            </td>
            <th scope="row">
                {name}
                {contract.group !== null && <small> group {contract.group}</small>}
            </th>
            <td>
                <Badge level={level} word={word} title={means} />
            </td>
            <td class="number">{units.milliseconds(contract.latency_p95_ms)}</td>
            <td class="number">{units.milliseconds(contract.latency_bound_ms)}</td>
            <td class="number">{units.accuracy(contract.accuracy)}</td>
            <td class="number">{units.accuracy(contract.accuracy_floor)}</td>
            <td class="number">{units.frameRate(contract.frames_per_second)}</td>
            <td class="reason">{contract.reason || means}</td>
        </tr>
    );
}

function figures(camera: CameraInfo): Fact[] {
    const { newest, frames } = camera;
    const skipped = camera.contracts
        .flatMap((contract) => Object.entries(contract.skipped))
        .reduce((sums, [reason, count]) => sums.set(reason, (sums.get(reason) ?? 0) + count), new Map<string, number>());
    const most = [...skipped].sort((a, b) => b[1] - a[1])[0];
    return [
        [
            "Publishes",
            `${units.frameRate(camera.frames_per_second)}, ${camera.width} × ${camera.height} pixels, ${units.bitRate(camera.published_bits_per_second)}`,
        ],
        ["Arrives in time", units.frameRate(camera.received_frames_per_second)],
        ["Link capacity", units.bitRate(camera.link_bits_per_second), "link"],
        ["Rate on the link", units.bitRate(camera.crossed_bits_per_second)],
        ["Round trip", units.milliseconds(camera.round_trip_ms)],
        ["Age error", camera.clock_error_ms === null ? units.UNKNOWN : `at most ${units.milliseconds(camera.clock_error_ms)}`, "age"],
        ["Channel", camera.channel ?? "not shared", "channel"],
        [
            "Newest frame",
            newest ? `${newest.sequence.toLocaleString("en")} of epoch ${newest.epoch}, ${units.bytes(newest.bytes)}` : units.UNKNOWN,
            "sequence",
        ],
        ["Published", units.counted(frames.published, "frame")],
        ["Arrived after newer frames", units.counted(frames.late, "frame")],
        ["Cancelled on the way", units.counted(frames.cancelled, "frame")],
        [
            "Main skip reason",
            most && most[1] > 0 ? `${skippedInWords(most[0])} (${units.counted(most[1], "frame")})` : "no frames skipped",
            "skip reason",
        ],
        ["Memory at the edge", units.bytes(camera.log_bytes), "log"],
        ["Disk at the edge", camera.edge_store ? units.bytes(camera.edge_store.bytes) : "none", "store"],
        ["Disk at the camera", camera.camera_store ? units.bytes(camera.camera_store.bytes) : "none, or unknown", "store"],
        ["Identity", camera.identity],
    ];
}
