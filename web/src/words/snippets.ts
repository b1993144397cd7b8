/** Code and commands that read a camera, to copy. */

import type { Site } from "../api/types.ts";

/** The port that applications try if an address names none. */
const GRPC_PORT = 7651;

export interface Snippet {
    title: string;
    text: string;
}

type Listens = Pick<Site, "grpc_port" | "socket">;

/**
 * How applications read `camera` of the edge at `host`, as the browser calls it. The name `localhost` says nothing to other hosts. Then they are
 * for programs on the edge's host, which use its socket and need no keys. `listens`: where the edge takes applications. Empty: it takes none there.
 */
export function snippets(camera: string, host: string, listens: Listens): Snippet[] {
    const { grpc_port: port, socket } = listens;
    if (isThisHost(host)) {
        return socket === null ? [] : [...usual(camera, `unix://${socket}`), grpc(camera, local(socket))];
    }
    if (port === null) return [];
    const address = port === GRPC_PORT ? host : `${host}:${port}`;
    return [...enrolment(camera, host), ...usual(camera, address), grpc(camera, remote(`${host}:${port}`))];
}

/** Whether a name in the address bar means a host only to that host itself. */
export function isThisHost(host: string): boolean {
    return host === "localhost" || host.endsWith(".localhost") || host.startsWith("127.") || host === "[::1]";
}

function usual(camera: string, edge: string): Snippet[] {
    return [
        {
            title: "Python",
            text: [
                "import mez",
                `for frame in mez.subscribe(${JSON.stringify(camera)}, edge=${JSON.stringify(edge)}, latency_ms=100):`,
                "    print(frame.camera, frame.age_ms, frame.contract, frame.image.shape)",
            ].join("\n"),
        },
        { title: "Command", text: `mez subscribe '${camera}' --edge '${edge}' --latency-ms 100` },
    ];
}

/** What a program on another host needs first. */
function enrolment(camera: string, host: string): Snippet[] {
    return [
        { title: "First, on the edge’s host: a token", text: `mez keys token app/viewer --watch '${camera}'` },
        { title: "Then, where the application runs: its keys", text: `mez keys enrol TOKEN --edge '${host}'` },
    ];
}

function grpc(camera: string, channel: readonly string[]): Snippet {
    const text = [
        "# Any language with gRPC; here Python, without Mez. Once, in the folder of mez.proto:",
        "#   pip install grpcio-tools",
        "#   python -m grpc_tools.protoc -I. --python_out=. --grpc_python_out=. mez.proto",
        ...channel,
        `request = mez_pb2.SubscribeRequest(pattern=${JSON.stringify(camera)})`,
        "request.contract.latency_bound_ns = 100_000_000",
        "for event in mez_pb2_grpc.EdgeBrokerStub(channel).Subscribe(request):",
        '    if event.HasField("frame"):',
        "        frame = event.frame",
        "        print(frame.camera, frame.sequence, frame.rung, len(frame.payload))",
    ];
    return { title: "gRPC", text: text.join("\n") };
}

const IMPORTS = ["import grpc, mez_pb2, mez_pb2_grpc", ""];

function remote(address: string): string[] {
    return [
        "from pathlib import Path",
        ...IMPORTS,
        'keys = Path.home() / ".config/mez/keys"  # the folder that “mez keys enrol” named',
        'authority = (keys / "authority.pem").read_bytes()',
        'viewer = (keys / "app+viewer.pem").read_bytes()  # both the key and the certificate',
        "channel = grpc.secure_channel(",
        `    ${JSON.stringify(address)},`,
        "    grpc.ssl_channel_credentials(authority, viewer, viewer),",
        '    [("grpc.ssl_target_name_override", "mez-edge"), ("grpc.max_receive_message_length", 34 << 20)],',
        ")",
    ];
}

function local(socket: string): string[] {
    return [
        ...IMPORTS,
        "channel = grpc.insecure_channel(",
        `    ${JSON.stringify(`unix://${socket}`)},`,
        '    [("grpc.default_authority", "localhost"), ("grpc.max_receive_message_length", 34 << 20)],',
        ")",
    ];
}
