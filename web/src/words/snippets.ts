/** Code and commands that read a camera, to copy. */

/** The port that applications try if an address names none. */
const GRPC_PORT = 7651;
/** The socket of an edge that runs as root. */
const SOCKET = "/run/mez/edge.sock";

export interface Snippet {
    title: string;
    text: string;
}

/**
 * How applications read `camera` of the edge at `host`. `port`: the edge's port for gRPC over TLS; `null` if only applications on its own host
 * can connect. They then need no address and no keys.
 */
export function snippets(camera: string, host: string, port: number | null): Snippet[] {
    const address = port === GRPC_PORT ? host : `${host}:${port}`;
    const edge = port === null ? "" : `, edge=${JSON.stringify(address)}`;
    return [
        ...(port === null ? [] : [enrolment(camera, host)]),
        {
            title: "Python",
            text: [
                "import mez",
                `for frame in mez.subscribe(${JSON.stringify(camera)}${edge}, latency_ms=100):`,
                "    print(frame.camera, frame.age_ms, frame.contract, frame.image.shape)",
            ].join("\n"),
        },
        {
            title: "Command",
            text: `mez subscribe '${camera}'${port === null ? "" : ` --edge ${address}`} --latency-ms 100`,
        },
        { title: "gRPC", text: [...GENERATE, ...(port === null ? local() : remote(host, port)), ...read(camera)].join("\n") },
    ];
}

/** What a program on another host needs first. */
function enrolment(camera: string, host: string): Snippet {
    return {
        title: "Keys, if you are on another host",
        text: `mez keys token app/viewer --watch '${camera}'  # on the edge’s host; prints a token\nmez keys enrol TOKEN --edge ${host}  # on yours`,
    };
}

const GENERATE = [
    "# Any language with gRPC; here Python, without Mez. Once, in the folder of mez.proto:",
    "#   pip install grpcio-tools",
    "#   python -m grpc_tools.protoc -I. --python_out=. --grpc_python_out=. mez.proto",
];

function remote(host: string, port: number): string[] {
    return [
        "from pathlib import Path",
        "import grpc, mez_pb2, mez_pb2_grpc",
        "",
        'keys = Path.home() / ".config/mez/keys"  # written by “mez keys enrol”',
        'authority = (keys / "authority.pem").read_bytes()',
        'viewer = (keys / "app+viewer.pem").read_bytes()  # both the key and the certificate',
        "channel = grpc.secure_channel(",
        `    ${JSON.stringify(`${host}:${port}`)},`,
        "    grpc.ssl_channel_credentials(authority, viewer, viewer),",
        '    [("grpc.ssl_target_name_override", "mez-edge"), ("grpc.max_receive_message_length", 34 << 20)],',
        ")",
    ];
}

function local(): string[] {
    return [
        "import grpc, mez_pb2, mez_pb2_grpc",
        "",
        "channel = grpc.insecure_channel(",
        `    "unix://${SOCKET}",  # “mez edge” prints its path`,
        '    [("grpc.default_authority", "localhost"), ("grpc.max_receive_message_length", 34 << 20)],',
        ")",
    ];
}

function read(camera: string): string[] {
    return [
        `request = mez_pb2.SubscribeRequest(pattern=${JSON.stringify(camera)})`,
        "request.contract.latency_bound_ns = 100_000_000",
        "for event in mez_pb2_grpc.EdgeBrokerStub(channel).Subscribe(request):",
        '    if event.HasField("frame"):',
        "        frame = event.frame",
        "        print(frame.camera, frame.sequence, frame.rung, frame.age_ns / 1e6, len(frame.payload))",
    ];
}
