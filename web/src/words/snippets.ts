/** Code and commands that read a camera, to copy. */

export interface Snippet {
    title: string;
    text: string;
}

export function snippets(camera: string, host: string): Snippet[] {
    return [
        {
            title: "Python",
            text: [
                "import mez",
                `for frame in mez.subscribe(${JSON.stringify(camera)}, edge=${JSON.stringify(host)}, latency_ms=100):`,
                "    print(frame.camera, frame.age_ms, frame.contract, frame.image.shape)",
            ].join("\n"),
        },
        { title: "Command", text: `mez subscribe '${camera}' --edge ${host} --latency-ms 100` },
    ];
}
