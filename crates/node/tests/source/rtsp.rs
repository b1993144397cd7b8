//! A network camera with RTSP (RFC 2326). Encoders make its video, and ffmpeg makes its packets.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mez_media::bitstream::UnitSplitter;
use mez_media::h264::{ForeignEncoder, ForeignOptions};
use mez_media::{ImageView, PixelFormat, Yuv420};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::support::ffmpeg_child;

/// The video of a network camera.
#[derive(Clone)]
pub enum Footage {
    /// ffmpeg's test picture, with an encoder of ffmpeg.
    Test(&'static [&'static str]),
    /// ffmpeg's test picture, with x265 and without B-frames. The coded bytes are kept here.
    X265(Arc<Mutex<Vec<u8>>>),
    /// Changing pictures by openh264. Its only key frames are the first one and requested ones.
    Told(Arc<AtomicBool>),
}

/// x264, which codes each picture at once.
pub const X264: &[&str] =
    &["-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-g", "10", "-pix_fmt", "yuv420p"];

/// A network camera that sends H.264 within its RTSP connection, to one client at a time.
pub async fn rtsp_camera(folder: &Path) -> String {
    showing_rtsp_camera(folder, Footage::Test(X264)).await
}

/// A network camera with other footage.
pub async fn showing_rtsp_camera(folder: &Path, footage: Footage) -> String {
    let address = any_rtsp_camera(folder, None, footage).await;
    format!("rtsp://bob:secret@{address}/cam")
}

/// A network camera with RTSP that can be switched off and on again at the same address.
pub struct RtspServer {
    address: SocketAddr,
    serving: tokio::task::JoinHandle<()>,
}

impl RtspServer {
    pub async fn start(folder: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Self { address, serving: Self::serve(listener, folder) }
    }

    pub fn url(&self) -> String {
        format!("rtsp://bob:secret@{}/cam", self.address)
    }

    /// Breaks its connections, and stops listening.
    pub async fn switch_off(&mut self) {
        self.serving.abort();
        let _ = (&mut self.serving).await;
    }

    pub async fn switch_on(&mut self, folder: &Path) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.serving = Self::serve(listener, folder);
    }

    fn serve(listener: TcpListener, folder: &Path) -> tokio::task::JoinHandle<()> {
        let sdp_path = folder.join("camera.sdp");
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                serve_rtsp(stream, &sdp_path, None, &Footage::Test(X264)).await;
            }
        })
    }
}

impl Drop for RtspServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// How a camera authenticates clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    Basic,
    Digest,
}

/// The user that a camera accepts.
#[derive(Debug, Clone, Copy)]
pub struct Guard {
    pub asks: Asks,
    pub user: &'static str,
    pub password: &'static str,
}

/// A network camera that accepts one user only. Returns its host and port.
pub async fn guarded_rtsp_camera(folder: &Path, guard: Option<Guard>) -> SocketAddr {
    any_rtsp_camera(folder, guard, Footage::Test(X264)).await
}

async fn any_rtsp_camera(folder: &Path, guard: Option<Guard>, footage: Footage) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let sdp_path = folder.join("camera.sdp");
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            serve_rtsp(stream, &sdp_path, guard, &footage).await;
        }
    });
    address
}

const NONCE: &str = "dcd98b7102dd2f0e8b11d0f600bfb0c0";

impl Guard {
    fn question(&self) -> String {
        match self.asks {
            Asks::Basic => "WWW-Authenticate: Basic realm=\"cam\"\r\n".into(),
            Asks::Digest => format!("WWW-Authenticate: Digest realm=\"cam\", nonce=\"{NONCE}\"\r\n"),
        }
    }

    /// Whether the answer proves that the client knows the password (RFC 2617).
    fn lets_in(&self, method: &str, answer: &str) -> bool {
        let Self { user, password, .. } = self;
        match self.asks {
            Asks::Basic => {
                let credentials = run_filter("base64", &["-w0"], format!("{user}:{password}").as_bytes());
                answer == format!("Basic {credentials}")
            }
            Asks::Digest => {
                let part = |name: &str| {
                    let rest = answer.split_once(&format!("{name}=\""))?.1;
                    Some(rest.split('"').next().unwrap_or_default().to_owned())
                };
                let (Some(uri), Some(response)) = (part("uri"), part("response")) else { return false };
                let ha1 = md5(&format!("{user}:cam:{password}"));
                let ha2 = md5(&format!("{method}:{uri}"));
                part("username").as_deref() == Some(*user) && response == md5(&format!("{ha1}:{NONCE}:{ha2}"))
            }
        }
    }
}

pub fn md5(text: &str) -> String {
    run_filter("md5sum", &[], text.as_bytes())[..32].to_owned()
}

/// The output of a program for this input.
pub fn run_filter(program: &str, args: &[&str], input: &[u8]) -> String {
    use std::io::Write;
    let mut command = std::process::Command::new(program);
    let piped = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

/// One RTSP session (RFC 2326, interleaved). ffmpeg makes the RTP packets, which are wrapped here.
async fn serve_rtsp(stream: TcpStream, sdp_path: &Path, guard: Option<Guard>, footage: &Footage) {
    let rtp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let _sending = footage.send(&rtp, sdp_path);
    // The kernel buffers few packets. On a busy host it would drop some before the client starts to play.
    let (arrived, mut packets) = mpsc::channel(100_000);
    let receive = async {
        let mut packet = vec![0; 1 << 16];
        while let Ok(count) = rtp.recv(&mut packet).await {
            let _ = arrived.send(packet[..count].to_vec()).await;
        }
    };
    let talk = async {
        let (read, mut write) = stream.into_split();
        let mut read = BufReader::new(read);
        loop {
            let Some(request) = read_request(&mut read).await else { return };
            let Some(answer) = rtsp_answer(&request, sdp_path, guard).await else { return };
            write.write_all(answer.as_bytes()).await.unwrap();
            if request.starts_with("PLAY") && answer.starts_with("RTSP/1.0 200") {
                break;
            }
        }
        let send = async {
            while let Some(packet) = packets.recv().await {
                let head = [b'$', 0, (packet.len() >> 8) as u8, packet.len() as u8];
                if write.write_all(&[&head, &packet[..]].concat()).await.is_err() {
                    return;
                }
            }
        };
        let gone = async { while read.read(&mut [0; 1024]).await.is_ok_and(|count| count > 0) {} };
        tokio::select! { () = send => {}, () = gone => {} }
    };
    tokio::select! { () = talk => {}, () = receive => {} }
}

const TEST_PICTURE: [&str; 5] = ["-re", "-f", "lavfi", "-i", "testsrc2=size=66x50:rate=25"];
/// x265 without B-frames, with parameter sets before each key frame.
const X265: &[&str] = &[
    "-c:v",
    "libx265",
    "-preset",
    "ultrafast",
    "-tune",
    "zerolatency",
    "-pix_fmt",
    "yuv420p",
    "-x265-params",
    "bframes=0:keyint=25:min-keyint=25:scenecut=0:repeat-headers=1:log-level=error",
];
/// The size of pictures that openh264 codes.
const SIDE: u32 = 64;

/// Sends until it is dropped.
struct Sending {
    _children: Vec<Child>,
    feeding: Option<JoinHandle<()>>,
}

impl Drop for Sending {
    fn drop(&mut self) {
        if let Some(feeding) = &self.feeding {
            feeding.abort();
        }
    }
}

impl Footage {
    /// Starts to send RTP packets to `rtp`, and writes their description to `sdp_path`.
    fn send(&self, rtp: &UdpSocket, sdp_path: &Path) -> Sending {
        let target = rtp.local_addr().unwrap();
        let url = format!("rtp://{target}");
        let _ = std::fs::remove_file(sdp_path);
        let out = ["-f", "rtp", "-sdp_file", sdp_path.to_str().unwrap(), &url];
        match self {
            Self::Test(encoder) => {
                let args = [&TEST_PICTURE[..], encoder, &["-bsf:v", "dump_extra"], &out].concat();
                Sending { _children: vec![ffmpeg_child(&args).spawn().unwrap()], feeding: None }
            }
            Self::X265(coded) => {
                let args =
                    [&TEST_PICTURE[..], X265, &["-f", "nut", "-flush_packets", "1", "pipe:1"]].concat();
                let mut encoding = ffmpeg_child(&args).stdout(Stdio::piped()).spawn().unwrap();
                // The header describes the stream. Without these options, ffmpeg analyses it for seconds first.
                let input = [
                    "-fpsprobesize",
                    "0",
                    "-analyzeduration",
                    "0",
                    "-f",
                    "nut",
                    "-i",
                    "pipe:0",
                    "-c",
                    "copy",
                ];
                let packets = [&input[..], &out].concat();
                let mut sending = ffmpeg_child(&packets).stdin(Stdio::piped()).spawn().unwrap();
                let (out, into) = (encoding.stdout.take().unwrap(), sending.stdin.take().unwrap());
                let feeding = tokio::spawn(kept(out, into, Arc::clone(coded)));
                Sending { _children: vec![encoding, sending], feeding: Some(feeding) }
            }
            Self::Told(key_frame) => {
                std::fs::write(sdp_path, SDP_OF_H264).unwrap();
                let feeding = tokio::spawn(told(target, Arc::clone(key_frame)));
                Sending { _children: Vec::new(), feeding: Some(feeding) }
            }
        }
    }
}

/// The description of an H.264 stream that contains its parameter sets.
const SDP_OF_H264: &str = "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=-\nt=0 0\nm=video 0 RTP/AVP 96\na=rtpmap:96 H264/90000\na=fmtp:96 packetization-mode=1\n";

/// Forwards a stream, and keeps a copy.
async fn kept(mut out: ChildStdout, mut into: ChildStdin, coded: Arc<Mutex<Vec<u8>>>) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = out.read(&mut bytes).await {
        coded.lock().unwrap().extend_from_slice(&bytes[..count]);
        if into.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

/// Codes a picture every 40 ms, as a key frame if one was requested since the last picture.
async fn told(target: SocketAddr, key_frame: Arc<AtomicBool>) {
    let options = ForeignOptions {
        width: SIDE,
        height: SIDE,
        quantiser: 30,
        key_frame_interval: 0,
        temporal_layers: 1,
        slices: 1,
    };
    let (mut encoder, mut planes) = (ForeignEncoder::new(&options).unwrap(), Yuv420::empty());
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut due = tokio::time::interval(Duration::from_millis(40));
    let mut sent = 0;
    for number in 0u32.. {
        due.tick().await;
        let pixels: Vec<u8> = (0..SIDE * SIDE).map(|at| ((at / 3 + number * 5) % 251) as u8).collect();
        planes.fill_from(&ImageView::packed(&pixels, SIDE, SIDE, PixelFormat::Gray8).unwrap());
        // A new encoder begins with a key frame.
        if key_frame.swap(false, Ordering::SeqCst) {
            encoder = ForeignEncoder::new(&options).unwrap();
        }
        let coded = encoder.encode(&planes.view().unwrap()).unwrap();
        for packet in rtp_packets(&coded, number, &mut sent) {
            // The receiver may be gone.
            let _ = socket.send_to(&packet, target).await;
        }
    }
}

/// One packet per NAL unit of a picture (RFC 6184, single NAL unit mode). Within a TCP connection, packets may have any size.
fn rtp_packets(coded: &[u8], number: u32, sent: &mut u16) -> Vec<Vec<u8>> {
    let mut splitter = UnitSplitter::new(1 << 20);
    splitter.push(coded);
    splitter.finish();
    let units: Vec<_> = std::iter::from_fn(|| splitter.next_unit().map(<[u8]>::to_vec)).collect();
    let last = units.len() - 1;
    let packet = |(place, unit): (usize, Vec<u8>)| {
        *sent = sent.wrapping_add(1);
        // The last packet of a picture has the marker. The clock rate is 90 kHz.
        let kind = if place == last { 0x80 | 96 } else { 96 };
        let (sequence, timestamp) = (sent.to_be_bytes(), number.wrapping_mul(3_600).to_be_bytes());
        [&[0x80, kind][..], &sequence, &timestamp, b"mezc", &unit].concat()
    };
    units.into_iter().enumerate().map(packet).collect()
}

/// The next request. `None` if the client is gone.
async fn read_request(read: &mut BufReader<tokio::net::tcp::OwnedReadHalf>) -> Option<String> {
    let mut request = String::new();
    loop {
        let start = request.len();
        let count = read.read_line(&mut request).await.ok()?;
        if count == 0 {
            return None;
        }
        if request[start..].trim().is_empty() {
            return Some(request);
        }
    }
}

/// The answer to a request. `None` for a request that ends the session.
async fn rtsp_answer(request: &str, sdp_path: &Path, guard: Option<Guard>) -> Option<String> {
    let field = |name: &str| {
        let line = request.lines().find(|line| line.to_ascii_lowercase().starts_with(name));
        line.and_then(|line| line.split_once(": ")).map(|(_, value)| value.to_owned()).unwrap_or_default()
    };
    let sequence = field("cseq:");
    let method = request.split(' ').next().unwrap_or_default();
    let refusal = guard.filter(|guard| !guard.lets_in(method, field("authorization:").trim()));
    if let Some(guard) = refusal {
        return Some(format!(
            "RTSP/1.0 401 Unauthorized\r\nCSeq: {}\r\n{}\r\n",
            sequence.trim(),
            guard.question()
        ));
    }
    let (extra, body) = match method {
        "OPTIONS" => ("Public: DESCRIBE, SETUP, PLAY, TEARDOWN\r\n".to_owned(), String::new()),
        "DESCRIBE" => {
            let mut sdp = String::new();
            while !(sdp.contains("a=rtpmap") && sdp.ends_with('\n')) {
                tokio::time::sleep(Duration::from_millis(10)).await;
                sdp = std::fs::read_to_string(sdp_path).unwrap_or_default();
            }
            // ffmpeg writes its own log line first.
            let start = sdp.find("v=0").unwrap();
            ("Content-Type: application/sdp\r\n".to_owned(), sdp[start..].to_owned())
        }
        "SETUP" => (format!("Session: 1\r\nTransport: {}\r\n", field("transport:")), String::new()),
        "PLAY" => ("Session: 1\r\n".to_owned(), String::new()),
        _ => return None,
    };
    Some(format!(
        "RTSP/1.0 200 OK\r\nCSeq: {sequence}\r\n{extra}Content-Length: {}\r\n\r\n{body}",
        body.len()
    ))
}
