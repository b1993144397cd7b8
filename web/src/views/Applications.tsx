/** Subscriptions of applications with their contracts, and groups of readers. */

import type { Application, Contract, Group } from "../api/types.ts";
import { Badge } from "../parts/Badge.tsx";
import { usePage } from "../parts/use.ts";
import { cameraHref } from "../state/route.ts";
import { meaningOf } from "../words/states.ts";
import * as units from "../words/units.ts";

const INFEASIBLE: Record<Contract["on_infeasible"], string> = {
    degrade: "if infeasible: the best frames that fit",
    skip: "if infeasible: no frames",
    stop: "if infeasible: the subscription ends",
};

/** A contract's bounds in words. */
function asksInWords(contract: Contract): string {
    const { latency_bound_ms: latency, accuracy_floor: accuracy, min_fps: rate, priority } = contract;
    const bounds = [
        latency === null ? "" : `${units.percent(contract.on_time_share_wanted)} of frames within ${units.milliseconds(latency)}`,
        accuracy === null ? "" : `accuracy at least ${accuracy}`,
        rate === 0 ? "" : `at least ${units.frameRate(rate)}`,
    ].filter((bound) => bound !== "");
    if (bounds.length === 0) return "no bounds";
    return `${bounds.join(", ")}; ${INFEASIBLE[contract.on_infeasible]}${priority === 0 ? "" : `; priority ${priority}`}`;
}

const total = (counts: Readonly<Record<string, number>>): number => Object.values(counts).reduce((sum, count) => sum + count, 0);

export function Applications() {
    const answer = usePage((page) => page.applications);
    if (!answer) return <p>Asking the edge…</p>;
    return (
        <>
            <h1>Applications</h1>
            {answer.applications.length === 0 && (
                <p>No application subscribes to a camera that you may observe. The page of each camera has code to copy.</p>
            )}
            {answer.applications.map((application) => (
                <Subscription key={application.subscription} application={application} />
            ))}
            <h2>Groups of readers</h2>
            {answer.groups.length === 0 ? (
                <p>There are no groups. In a group, several programs share the records of one subscription.</p>
            ) : (
                answer.groups.map((group) => <GroupCard key={`${group.owner} ${group.name}`} group={group} />)
            )}
        </>
    );
}

function Subscription({ application }: { application: Application }) {
    const name = application.application || `subscription ${application.subscription}`;
    return (
        <section class="card" aria-label={name}>
            <header>
                <h2>{name}</h2>
                <p>
                    reads <code>{application.pattern}</code>, {application.deliver === "newest" ? "the newest frames" : "every record"}
                    {application.group !== null && `, for the group ${application.group}`}
                </p>
                <p class="number">{units.frameRate(application.frames_per_second)}</p>
            </header>
            {application.cameras[0] && <p class="hint">Contract: {asksInWords(application.cameras[0].contract)}.</p>}
            <div class="scroll" tabIndex={0} role="region" aria-label={`Cameras of ${name}`}>
                <table>
                    <thead>
                        <tr>
                            <th scope="col">Camera</th>
                            <th scope="col">State</th>
                            <th scope="col" class="number">
                                Latency p50
                            </th>
                            <th scope="col" class="number">
                                p95
                            </th>
                            <th scope="col" class="number">
                                Accuracy
                            </th>
                            <th scope="col" class="number">
                                Rate
                            </th>
                            <th scope="col" class="number">
                                Delivered
                            </th>
                            <th scope="col" class="number">
                                Skipped
                            </th>
                            <th scope="col">Why</th>
                        </tr>
                    </thead>
                    <tbody>
                        {application.cameras.map(({ camera, contract }) => {
                            const { level, word, means } = meaningOf(contract.state);
                            return (
                                <tr key={camera}>
                                    <th scope="row">
                                        <a href={cameraHref(camera)}>{camera}</a>
                                    </th>
                                    <td>
                                        <Badge level={level} word={word} title={means} />
                                    </td>
                                    <td class="number">{units.milliseconds(contract.latency_p50_ms)}</td>
                                    <td class="number">{units.milliseconds(contract.latency_p95_ms)}</td>
                                    <td class="number">{units.accuracy(contract.accuracy)}</td>
                                    <td class="number">{units.frameRate(contract.frames_per_second)}</td>
                                    <td class="number">{contract.delivered.toLocaleString("en")}</td>
                                    <td class="number">{total(contract.skipped).toLocaleString("en")}</td>
                                    <td class="reason">{contract.reason || means}</td>
                                </tr>
                            );
                        })}
                    </tbody>
                </table>
            </div>
        </section>
    );
}

/** A group: its lag, counts and members. */
function GroupCard({ group }: { group: Group }) {
    const lag = group.lanes.reduce((sum, lane) => sum + (lane.lag ?? 0), 0);
    return (
        <section class="card" aria-label={`Group ${group.name}`}>
            <header>
                <h3>{group.name}</h3>
                <p>
                    of {group.owner}, reads <code>{group.pattern}</code>,{" "}
                    {group.deliver === "newest" ? "the newest frames" : "every record"}
                </p>
                {group.degraded ? (
                    <Badge level="bad" word="place not written to disk" title={group.degraded} />
                ) : group.asleep ? (
                    <Badge level="off" word="asleep" title="The group has had no member since the edge was started" />
                ) : null}
                <p class="number">{units.counted(lag, "record")} behind</p>
            </header>
            <p class="hint">
                {group.given.toLocaleString("en")} given, {group.done.toLocaleString("en")} done, {group.open.toLocaleString("en")} open,{" "}
                {units.counted(group.dead, "dead letter")}, {group.lost.toLocaleString("en")} lost.
                {group.survives ? "" : " Its place is lost when the edge restarts."} {group.degraded}
            </p>
            <div class="scroll" tabIndex={0} role="region" aria-label={`Members of ${group.name}`}>
                <table>
                    <thead>
                        <tr>
                            <th scope="col">Member</th>
                            <th scope="col" class="number">
                                Given
                            </th>
                            <th scope="col" class="number">
                                Done
                            </th>
                            <th scope="col" class="number">
                                Failed
                            </th>
                            <th scope="col" class="number">
                                Open
                            </th>
                        </tr>
                    </thead>
                    <tbody>
                        {group.members.length === 0 && (
                            <tr>
                                <td colSpan={5}>The group has no members now.</td>
                            </tr>
                        )}
                        {group.members.map((member, at) => (
                            <tr key={at}>
                                <th scope="row">{member.application}</th>
                                <td class="number">{member.given.toLocaleString("en")}</td>
                                <td class="number">{member.done.toLocaleString("en")}</td>
                                <td class="number">{member.failed.toLocaleString("en")}</td>
                                <td class="number">{member.open.toLocaleString("en")}</td>
                            </tr>
                        ))}
                    </tbody>
                </table>
            </div>
        </section>
    );
}
