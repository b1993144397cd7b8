//! Generated videos, and small servers that act as network cameras.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mez_media::jpeg::{Decoder, Encoder, Sampling};
use mez_media::{Image, ImageView, PixelFormat};
use mez_node::source::{Source, SourceEvent, SourceFrame, SourceOptions, SourceSpec};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Runs ffmpeg to its end, and returns its standard output.
pub fn ffmpeg(args: &[&str]) -> Vec<u8> {
    run("ffmpeg", &[&["-v", "error", "-nostdin", "-y"], args].concat())
}

/// Runs a program of ffmpeg to its end, and returns its standard output.
pub fn run(program: &str, args: &[&str]) -> Vec<u8> {
    let output = Command::new(program).args(args).output().unwrap_or_else(|error| {
        panic!(
            "{program} does not run ({error}): these tests need it; install it with: apt-get install ffmpeg"
        )
    });
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// A folder with a video: a brightness gradient that jumps, with a changing colour, so that all frames differ.
pub struct Video {
    pub folder: TempDir,
    pub path: PathBuf,
}

impl Video {
    /// `size` is like `64x48`, `args` select codec and pixel format, and the extension of `name` selects the container.
    pub fn new(name: &str, size: &str, frames: u32, args: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join(name);
        let picture = "lum='mod(X*2+Y+N*37,256)':cb='128+60*sin(N)':cr='128+60*cos(N)'";
        let source = format!("nullsrc=size={size}:rate=20,format=yuv444p,geq={picture}");
        let frames = frames.to_string();
        let input = ["-f", "lavfi", "-i", &source, "-frames:v", &frames, "-fflags", "+bitexact"];
        ffmpeg(&[&input[..], args, &[path.to_str().unwrap()]].concat());
        Self { folder, path }
    }

    pub fn text(&self) -> &str {
        self.path.to_str().unwrap()
    }

    pub fn spec(&self) -> SourceSpec {
        SourceSpec::File(self.path.clone())
    }

    /// Writes the first `share` of its bytes into another file.
    pub fn cut(&self, share: f64) -> PathBuf {
        let bytes = std::fs::read(&self.path).unwrap();
        let path =
            self.folder.path().join(format!("cut-{}", self.path.file_name().unwrap().to_str().unwrap()));
        std::fs::write(&path, &bytes[..(bytes.len() as f64 * share) as usize]).unwrap();
        path
    }

    /// Its frames as decoded by ffmpeg: one BGR image per frame.
    pub fn decoded(&self, width: u32, height: u32) -> Vec<Vec<u8>> {
        let bytes = ffmpeg(&["-i", self.text(), "-f", "rawvideo", "-pix_fmt", "bgr24", "pipe:1"]);
        bytes.chunks_exact((width * height * 3) as usize).map(<[u8]>::to_vec).collect()
    }

    /// Its packets as copied by ffmpeg, with the boundaries of the container.
    pub fn packets(&self) -> Vec<Vec<u8>> {
        let sizes =
            run("ffprobe", &["-v", "error", "-show_entries", "packet=size", "-of", "csv=p=0", self.text()]);
        let stream = ffmpeg(&["-i", self.text(), "-map", "0:v:0", "-c", "copy", "-f", "mjpeg", "pipe:1"]);
        let mut rest = &stream[..];
        let sizes = String::from_utf8(sizes).unwrap();
        let packets = sizes.lines().map(|size| {
            let (packet, after) = rest.split_at(size.trim_matches(',').parse().unwrap());
            rest = after;
            packet.to_vec()
        });
        let packets = packets.collect();
        assert!(rest.is_empty());
        packets
    }
}

/// Options with which H.264 is decoded, like all other codecs except JPEG.
pub fn decoded() -> SourceOptions {
    SourceOptions { packets: false, ..SourceOptions::default() }
}

/// Like `decoded`, at a frame rate at which a few dozen frames take about a second.
pub fn at(fps: f64) -> SourceOptions {
    SourceOptions { fps: Some(fps), ..decoded() }
}

/// The next event. Fails the test after a minute, which no load explains.
pub async fn next(source: &mut Source) -> SourceEvent {
    tokio::time::timeout(Duration::from_secs(60), source.next()).await.expect("the source says nothing")
}

/// The next frame. Skips other events.
pub async fn next_frame(source: &mut Source) -> SourceFrame {
    loop {
        match next(source).await {
            SourceEvent::Frame(frame) => return frame,
            SourceEvent::Skipped { .. } | SourceEvent::Restarting { .. } => {}
            other => panic!("{other:?} in place of a frame"),
        }
    }
}

/// The reason of the next restart. Skips frames.
pub async fn next_restart(source: &mut Source) -> String {
    loop {
        match next(source).await {
            SourceEvent::Restarting { why, .. } => return why,
            SourceEvent::Frame(_) | SourceEvent::Skipped { .. } => {}
            other => panic!("{other:?} in place of a restart"),
        }
    }
}

/// All frames until the end, and the number of skipped ones.
pub async fn read_to_end(source: &mut Source) -> (Vec<SourceFrame>, u64) {
    let (mut frames, mut skipped) = (Vec::new(), 0);
    loop {
        match next(source).await {
            SourceEvent::Frame(frame) => frames.push(frame),
            SourceEvent::Skipped { count } => skipped += count,
            SourceEvent::Ended => return (frames, skipped),
            other => panic!("{other:?}"),
        }
    }
}

pub fn pixels(jpeg: &[u8]) -> Image {
    let mut image = Image::empty();
    Decoder::default().decode_bgr(jpeg, &mut image).unwrap();
    image
}

/// The reference image with the smallest mean difference, and this difference.
pub fn recognise(image: &Image, references: &[Vec<u8>]) -> (usize, f64) {
    let difference = |reference: &Vec<u8>| {
        assert_eq!(reference.len(), image.data().len());
        // For a large picture, a sample of its pixels is enough.
        let step = (reference.len() / 2000).max(1);
        let pairs = reference.iter().zip(image.data()).step_by(step);
        let sum: u64 = pairs.map(|(&a, &b)| u64::from(a.abs_diff(b))).sum();
        sum as f64 / reference.len().div_ceil(step) as f64
    };
    let differences = references.iter().map(difference).enumerate();
    differences.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap()
}

/// Whether a process with this ID exists and has not ended.
pub fn is_running(pid: u32) -> bool {
    // A killed child stays in the process table until its parent reads its status.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").trim_start().starts_with(['Z', 'X']))
}

/// Waits until a process has ended.
pub async fn wait_for_the_end_of(pid: u32) {
    for _ in 0..3000 {
        if !is_running(pid) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("process {pid} is still running");
}

pub fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// A port of this host without a listener.
pub async fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

/// A grey picture whose brightness encodes its number.
pub fn numbered_jpeg(number: u64) -> Vec<u8> {
    let pixels = vec![(number % 200) as u8 + 20; 32 * 24];
    let view = ImageView::packed(&pixels, 32, 24, PixelFormat::Gray8).unwrap();
    Encoder::new(95, Sampling::Yuv420).unwrap().encode(&view).unwrap().to_vec()
}

/// The behaviour of a [`MjpegCamera`] on a connection.
#[derive(Debug, Clone, Copy)]
pub struct Behaviour {
    pub interval: Duration,
    /// After this many frames it goes silent without closing the connection.
    pub silent_after: Option<u64>,
    /// After this many frames it closes the connection.
    pub close_after: Option<u64>,
}

/// A network camera that sends Motion JPEG over HTTP (`multipart/x-mixed-replace`).
pub struct MjpegCamera {
    pub url: String,
    /// Number of sent frames.
    pub sent: Arc<AtomicU64>,
    /// Number of connections with a request.
    pub connections: Arc<AtomicU64>,
}

impl MjpegCamera {
    pub async fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://bob:secret@{}/video.mjpeg?key=secret", listener.local_addr().unwrap());
        let (sent, connections) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let counters = (Arc::clone(&sent), Arc::clone(&connections));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(Self::serve(stream, behaviour, counters.clone()));
            }
        });
        Self { url, sent, connections }
    }

    async fn serve(stream: TcpStream, behaviour: Behaviour, counters: (Arc<AtomicU64>, Arc<AtomicU64>)) {
        let (sent, connections) = counters;
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        while stream.read_line(&mut line).await.is_ok_and(|count| count > 2) {
            line.clear();
        }
        connections.fetch_add(1, Ordering::SeqCst);
        let head = "HTTP/1.0 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=frame\r\n\r\n";
        if stream.write_all(head.as_bytes()).await.is_err() {
            return;
        }
        for number in 0.. {
            if behaviour.close_after == Some(number) {
                return;
            }
            if behaviour.silent_after == Some(number) {
                std::future::pending::<()>().await;
            }
            let jpeg = numbered_jpeg(sent.fetch_add(1, Ordering::SeqCst));
            let part =
                format!("--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {}\r\n\r\n", jpeg.len());
            let bytes = [part.as_bytes(), &jpeg, b"\r\n"].concat();
            if stream.write_all(&bytes).await.is_err() {
                return;
            }
            tokio::time::sleep(behaviour.interval).await;
        }
    }
}

/// A child process that ends with the test.
pub fn ffmpeg_child(args: &[&str]) -> tokio::process::Command {
    let mut command = tokio::process::Command::new("ffmpeg");
    command
        .args(["-v", "error", "-nostdin"])
        .args(args)
        .kill_on_drop(true)
        .stdin(std::process::Stdio::null());
    command
}

/// A camera that sends an MPEG transport stream of H.264 to every client.
pub async fn transport_stream_camera() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let args = [
                    "-re",
                    "-f",
                    "lavfi",
                    "-i",
                    "testsrc2=size=66x50:rate=25",
                    "-c:v",
                    "libx264",
                    "-preset",
                    "ultrafast",
                    "-tune",
                    "zerolatency",
                    "-g",
                    "10",
                    "-pix_fmt",
                    "yuv420p",
                    "-f",
                    "mpegts",
                    "pipe:1",
                ];
                let mut child = ffmpeg_child(&args).stdout(std::process::Stdio::piped()).spawn().unwrap();
                let _ = tokio::io::copy(&mut child.stdout.take().unwrap(), &mut stream).await;
            });
        }
    });
    url
}

/// Reads the arguments and the environment of all processes repeatedly, until it is dropped.
pub struct Onlooker {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<Vec<String>>>,
}

impl Onlooker {
    /// Searches for these texts, and for children that read a playlist.
    pub fn start(secrets: &'static [&'static str]) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut seen = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let processes = std::fs::read_dir("/proc").unwrap().flatten();
                for process in
                    processes.filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok())
                {
                    for what in ["cmdline", "environ"] {
                        let content = std::fs::read(process.path().join(what)).unwrap_or_default();
                        let content = String::from_utf8_lossy(&content).into_owned();
                        let shows = |secret: &&str| content.contains(*secret);
                        if secrets.iter().any(shows) || what == "cmdline" && content.contains("-f\0concat\0")
                        {
                            seen.push(content);
                        }
                    }
                }
            }
            seen
        });
        Self { stop, thread: Some(thread) }
    }

    /// The arguments and environments that contained one of the texts, and those of children that read a playlist.
    pub fn seen(mut self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}
