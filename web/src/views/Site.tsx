/** The site: edge, links and clocks, disks, channels, certificates and events. */

import { useState } from "preact/hooks";

import type { Cameras, EdgeEvent, Site as SiteInfo } from "../api/types.ts";
import { Badge } from "../parts/Badge.tsx";
import { Facts } from "../parts/Facts.tsx";
import { usePage } from "../parts/use.ts";
import { cameraHref } from "../state/route.ts";
import { eventInWords, type Level } from "../words/states.ts";
import * as units from "../words/units.ts";

export function Site() {
    const site = usePage((page) => page.site);
    const cameras = usePage((page) => page.cameras);
    if (!site || !cameras) return <p>Asking the edge…</p>;
    return (
        <>
            <header class="tools">
                <h1>Site {site.site}</h1>
                <Badge
                    level={site.ready.ok ? "good" : "bad"}
                    word={site.ready.ok ? "edge ready" : `edge not ready: ${site.ready.failing.join(", ")}`}
                />
            </header>
            <Edge site={site} />
            <Links cameras={cameras} />
            <div class="columns">
                <Channels site={site} />
                <Certificates site={site} />
            </div>
            <Events />
        </>
    );
}

function Edge({ site }: { site: SiteInfo }) {
    return (
        <section aria-labelledby="edge">
            <h2 id="edge">Edge {site.edge}</h2>
            <Facts
                facts={[
                    ["Version", site.version],
                    ["Runs since", `${new Date(site.edge_start).toLocaleString("en-GB")} (${units.milliseconds(site.uptime_ms)})`],
                    ["Cameras", `${site.cameras_connected} of ${site.cameras} connected`],
                    ["Applications", site.applications.toLocaleString("en")],
                    ["Frames in memory", units.bytes(site.log_bytes), "log"],
                    ["Frames on disk", site.store_bytes === null ? "none" : units.bytes(site.store_bytes), "store"],
                    ["Signed in as", site.signed_in.identity],
                    [
                        "Signed in until",
                        site.signed_in.until_utc_ms === null
                            ? "no session (certificate or proxy)"
                            : new Date(site.signed_in.until_utc_ms).toLocaleString("en-GB"),
                    ],
                ]}
            />
        </section>
    );
}

function Links({ cameras }: { cameras: Cameras }) {
    const linked = cameras.cameras.filter((camera) => camera.derived_from.length === 0);
    return (
        <section aria-labelledby="links">
            <h2 id="links">Links, clocks and disks</h2>
            <div class="scroll" tabIndex={0} role="region" aria-label="Links, clocks and disks of cameras">
                <table>
                    <thead>
                        <tr>
                            <th scope="col">Camera</th>
                            <th scope="col">Link</th>
                            <th scope="col" class="number">
                                Link capacity
                            </th>
                            <th scope="col" class="number">
                                Rate on the link
                            </th>
                            <th scope="col" class="number">
                                Published
                            </th>
                            <th scope="col" class="number">
                                Round trip
                            </th>
                            <th scope="col" class="number">
                                Age error
                            </th>
                            <th scope="col" class="number">
                                Disk at the edge
                            </th>
                            <th scope="col" class="number">
                                Disk at the camera
                            </th>
                        </tr>
                    </thead>
                    <tbody>
                        {linked.length === 0 && (
                            <tr>
                                <td colSpan={9}>There are no cameras yet.</td>
                            </tr>
                        )}
                        {linked.map((camera) => (
                            <tr key={camera.name}>
                                <th scope="row">
                                    <a href={cameraHref(camera.name)}>{camera.name}</a>
                                </th>
                                <td>
                                    <Badge level={camera.connected ? "good" : "bad"} word={camera.connected ? "connected" : "absent"} />
                                </td>
                                <td class="number">{units.bitRate(camera.link_bits_per_second)}</td>
                                <td class="number">{units.bitRate(camera.crossed_bits_per_second)}</td>
                                <td class="number">{units.bitRate(camera.published_bits_per_second)}</td>
                                <td class="number">{units.milliseconds(camera.round_trip_ms)}</td>
                                <td class="number">{units.milliseconds(camera.clock_error_ms)}</td>
                                <Disk store={camera.edge_store} />
                                <Disk store={camera.camera_store} />
                            </tr>
                        ))}
                    </tbody>
                </table>
            </div>
        </section>
    );
}

function Disk({ store }: { store: Cameras["cameras"][number]["edge_store"] }) {
    if (!store) return <td class="number">{units.UNKNOWN}</td>;
    return (
        <td class="number" title={store.degraded}>
            {store.degraded ? <Badge level="bad" word={store.degraded} /> : units.bytes(store.bytes)}
            {store.lost > 0 && <small> {units.counted(store.lost, "frame")} lost</small>}
        </td>
    );
}

function Channels({ site }: { site: SiteInfo }) {
    return (
        <section aria-labelledby="channels">
            <h2 id="channels">Shared channels</h2>
            {site.channels.length === 0 ? (
                <p>
                    None declared. If several cameras share one radio cell, declare it: <code>mez edge --channel 'hall=dock/*'</code>
                </p>
            ) : (
                <ul>
                    {site.channels.map((channel) => (
                        <li key={channel.name}>
                            <strong>{channel.name}</strong>:{" "}
                            {channel.bits_per_second === null
                                ? "not measured yet"
                                : `${units.bitRate(channel.bits_per_second)} for all cameras together`}
                            , {units.counted(channel.cameras.length, "camera")}: {channel.cameras.map(channelCamera).join(", ")}
                        </li>
                    ))}
                </ul>
            )}
        </section>
    );
}

/** A camera of a channel, with its share of the channel. */
function channelCamera({ name, share_frame_bytes: share }: SiteInfo["channels"][number]["cameras"][number]): string {
    if (share === null) return name;
    return share === 0 ? `${name} (no room for its accuracy floor)` : `${name} (${units.bytes(share)} per frame)`;
}

/** Certificates with fewer days left get a warning. Members renew theirs after 20 of 30 days, so such a certificate was not renewed. */
const SOON_DAYS = 7;

/** Number of certificates that are shown at once: those that expire first. */
const CERTIFICATES_SHOWN = 8;

function Certificates({ site }: { site: SiteInfo }) {
    const first = site.certificates.slice(0, CERTIFICATES_SHOWN);
    const later = site.certificates.slice(CERTIFICATES_SHOWN);
    return (
        <section aria-labelledby="certificates">
            <h2 id="certificates">Certificates</h2>
            <CertificateList of={first} now={site.now_utc_ms} />
            {later.length > 0 && (
                <details>
                    <summary>{units.counted(later.length, "more certificate")}</summary>
                    <CertificateList of={later} now={site.now_utc_ms} />
                </details>
            )}
        </section>
    );
}

function CertificateList({ of, now }: { of: SiteInfo["certificates"]; now: number }) {
    return (
        <ul>
            {of.map((certificate) => {
                const left = (certificate.ends_utc_ms - now) / 1000;
                const level: Level = left <= 0 ? "bad" : left < SOON_DAYS * 86_400 ? "warn" : "good";
                return (
                    <li key={certificate.of}>
                        <Badge level={level} word={left <= 0 ? "expired" : `${units.duration(left)} left`} /> {certificate.of}
                    </li>
                );
            })}
        </ul>
    );
}

/** Maximum number of events on the screen. */
const ROWS_MAX = 100;

function Events() {
    const events = usePage((page) => page.events);
    const [wanted, setWanted] = useState("");
    const [kind, setKind] = useState("");
    const chosen = events.filter((event) => (kind === "" || event.kind === kind) && textOf(event).includes(wanted.trim().toLowerCase()));
    return (
        <section aria-labelledby="events">
            <div class="tools">
                <h2 id="events">Events</h2>
                <label>
                    Kind{" "}
                    <select value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
                        <option value="">all</option>
                        <option value="contract">contracts</option>
                        <option value="camera">cameras</option>
                        <option value="source">sources</option>
                        <option value="store">disks</option>
                        <option value="certificate">certificates</option>
                        <option value="group">groups</option>
                    </select>
                </label>
                <label>
                    Text <input type="search" value={wanted} onInput={(event) => setWanted(event.currentTarget.value)} />
                </label>
            </div>
            {chosen.length === 0 && <p>{events.length === 0 ? "There are no events yet." : "No event matches the filter."}</p>}
            <ol class="events">
                {chosen.slice(0, ROWS_MAX).map((event) => {
                    const { level, word, means } = eventInWords(event);
                    return (
                        <li key={event.id}>
                            <time dateTime={new Date(event.utc_ms).toISOString()}>{units.timeOfDay(event.utc_ms)}</time>
                            <Badge level={level} word={word} />
                            <span class="who">
                                {event.camera !== null && <a href={cameraHref(event.camera)}>{event.camera}</a>} {event.application}
                            </span>
                            <span class="reason">{means}</span>
                        </li>
                    );
                })}
            </ol>
            {chosen.length > ROWS_MAX && <p class="hint">{chosen.length - ROWS_MAX} older events are not shown.</p>}
        </section>
    );
}

const textOf = (event: EdgeEvent): string =>
    `${event.camera ?? ""} ${event.application ?? ""} ${eventInWords(event).word} ${event.sentence}`.toLowerCase();
