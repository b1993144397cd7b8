//! Finds out with `ffprobe` what a source is, and explains what is wrong with it.

use std::path::{Path, PathBuf};
use std::process::{Output as ProcessOutput, Stdio};
use std::time::Duration;

use mez_core::frame::Encoding;
use mez_media::bitstream::Unfit;
use serde::Deserialize;
use tokio::io::AsyncReadExt;

use super::child::spawn_child;
use super::command::{DeviceFormat, InputOptions, probe_args, script};
use super::error::SourceError;
use super::input::{FfmpegVersion, Stream};
use super::spec::SourceSpec;
use super::spec::without_credentials;
use super::types::SourceOptions;

/// How long `ffprobe` may take. A source that takes longer counts as not answering.
const PROBE_TIME_MAX: Duration = Duration::from_secs(20);
/// The most bytes of `ffprobe`'s output that are read.
const PROBE_BYTES_MAX: u64 = 1 << 20;
/// The frame rate of a recording that states none, such as a still image or raw frames without a container.
pub(super) const FRAMES_PER_SECOND_UNSTATED: f64 = 25.0;
/// The highest stated rate that is believed. Higher values are time bases that a container states instead of a rate.
const FRAMES_PER_SECOND_BELIEVED_MAX: f64 = 1000.0;

#[derive(Debug, Deserialize)]
struct Report {
    #[serde(default)]
    streams: Vec<ReportStream>,
    #[serde(default)]
    format: ReportFormat,
}

#[derive(Debug, Default, Deserialize)]
struct ReportFormat {
    format_name: Option<String>,
    duration: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct ReportStream {
    index: u32,
    codec_type: Option<String>,
    codec_name: Option<String>,
    pix_fmt: Option<String>,
    #[serde(default)]
    width: u32,
    #[serde(default)]
    height: u32,
    field_order: Option<String>,
    has_b_frames: Option<u32>,
    avg_frame_rate: Option<String>,
    r_frame_rate: Option<String>,
    #[serde(default)]
    disposition: ReportDisposition,
    #[serde(default)]
    side_data_list: Vec<ReportSideData>,
}

#[derive(Debug, Default, Deserialize)]
struct ReportSideData {
    /// The rotation that pictures need, in degrees.
    #[serde(default)]
    rotation: f64,
}

#[derive(Debug, Default, Deserialize)]
struct ReportDisposition {
    #[serde(default)]
    attached_pic: u32,
}

/// Reads the version of `ffmpeg`. Fails if ffmpeg is missing.
pub(super) async fn ffmpeg_version(ffmpeg: &Path) -> Result<FfmpegVersion, SourceError> {
    let line = first_line(ffmpeg).await?;
    if !line.starts_with("ffmpeg version ") {
        return Err(SourceError::NotFfmpeg { program: ffmpeg.to_owned() });
    }
    Ok(FfmpegVersion::parse(&line))
}

/// The line in which `ffmpeg` or `ffprobe` prints its version.
pub(super) async fn first_line(program: &Path) -> Result<String, SourceError> {
    let output = run(program, vec!["-version".into()], None).await?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().unwrap_or_default();
    let says = ["ffmpeg version ", "ffprobe version "];
    if !output.status.success() || !says.iter().any(|words| line.starts_with(words)) {
        return Err(SourceError::NotFfmpeg { program: program.to_owned() });
    }
    Ok(line.to_owned())
}

/// Finds the video stream of a source. For a device, also chooses the format: a format that the device compresses itself is preferred.
pub(super) async fn probe(
    spec: &SourceSpec,
    options: &SourceOptions,
) -> Result<(Stream, InputOptions), SourceError> {
    check_path(spec)?;
    let plain = InputOptions { device_size: options.device_size, device_format: None };
    for format in compressed(spec, options) {
        let asked = InputOptions { device_format: Some(format), ..plain };
        match probe_once(spec, options, asked).await {
            // The device may have another format that needs no decoding.
            Ok(stream) if stream.unfit.is_some() => {}
            Ok(stream) => return Ok((stream, asked)),
            // Other errors may only mean that the device lacks this format.
            Err(
                error @ (SourceError::Busy { .. }
                | SourceError::NotPermitted { .. }
                | SourceError::NoAnswer { .. }),
            ) => {
                return Err(error);
            }
            Err(_) => {}
        }
    }
    Ok((probe_once(spec, options, plain).await?, plain))
}

/// The compressed formats to try on a device, best first. H.264 crosses links unchanged; it is of no use if it has to be decoded.
fn compressed(spec: &SourceSpec, options: &SourceOptions) -> impl Iterator<Item = DeviceFormat> + use<> {
    let is_device = matches!(spec, SourceSpec::Device(_));
    let takes_h264 = options.packets && options.fps.is_none();
    let formats = [DeviceFormat::H264, DeviceFormat::Mjpeg].into_iter();
    formats.filter(move |format| is_device && (takes_h264 || *format != DeviceFormat::H264))
}

async fn probe_once(
    spec: &SourceSpec,
    options: &SourceOptions,
    input: InputOptions,
) -> Result<Stream, SourceError> {
    let source = spec.to_string();
    let output =
        tokio::time::timeout(PROBE_TIME_MAX, run(&options.ffprobe, probe_args(spec, input), script(spec)))
            .await
            .map_err(|_| SourceError::NoAnswer { source_name: source.clone(), after: PROBE_TIME_MAX })??;
    if !output.status.success() {
        return Err(explain(spec, &String::from_utf8_lossy(&output.stderr)));
    }
    let report: Report = serde_json::from_slice(&output.stdout).map_err(|error| SourceError::Unreadable {
        source_name: source,
        detail: format!("ffprobe: {error}"),
    })?;
    Ok(with_decoder(choose_stream(spec, &report)?, options).await)
}

/// Clears `packets` of an H.265 or AV1 stream that cannot be decoded here: some subscribers need pictures made from it.
async fn with_decoder(stream: Stream, options: &SourceOptions) -> Stream {
    let needs = stream.packets.filter(|encoding| encoding.is_foreign() && options.packets);
    let Some(encoding) = needs else { return stream };
    let decoders = options.decoders.clone();
    let tried = tokio::task::spawn_blocking(move || decoders.try_video(encoding)).await;
    match tried.map_err(|error| error.to_string()).flatten() {
        Ok(_) => stream,
        Err(reason) => {
            let name = encoding.name();
            let why = format!(
                "its {name} video cannot be sent unchanged, because no decoder of {name} works on this host ({reason}); `mez doctor` tests the \
                 decoders"
            );
            Stream { packets: None, unfit: Some(why), ..stream }
        }
    }
}

fn choose_stream(spec: &SourceSpec, report: &Report) -> Result<Stream, SourceError> {
    let source_name = spec.to_string();
    let is = |stream: &ReportStream, kind: &str| stream.codec_type.as_deref() == Some(kind);
    // The cover picture of a sound recording is not a video.
    let video =
        report.streams.iter().find(|stream| is(stream, "video") && stream.disposition.attached_pic == 0);
    let Some(video) = video else {
        return Err(SourceError::NoVideo {
            source_name,
            audio_only: report.streams.iter().any(|s| is(s, "audio")),
        });
    };
    let (width, height) = (video.width, video.height);
    if width == 0 || height == 0 {
        return Err(SourceError::Unreadable {
            source_name,
            detail: "its video stream states no size, so it is damaged or not yet sending".to_owned(),
        });
    }
    let codec = video.codec_name.clone().unwrap_or_else(|| "an unknown codec".to_owned());
    let live = match spec {
        SourceSpec::File(_) => false,
        SourceSpec::Device(_) => true,
        // A URL with a duration is a recording.
        SourceSpec::Url(_) => spec.is_always_live() || seconds(report.format.duration.as_deref()).is_none(),
    };
    // Without an average rate, `r_frame_rate` is ffmpeg's default. It is used for recordings only, which need some rate.
    let rates = [video.avg_frame_rate.as_deref(), video.r_frame_rate.as_deref().filter(|_| !live)];
    let stated =
        rates.into_iter().flatten().filter_map(ratio).find(|&rate| rate <= FRAMES_PER_SECOND_BELIEVED_MAX);
    if stated.is_none() && !live {
        tracing::info!(source = %source_name, "the source states no frame rate; {FRAMES_PER_SECOND_UNSTATED} frames per second are assumed");
    }
    let unfit = unfit(video);
    Ok(Stream {
        index: video.index,
        passthrough: codec == "mjpeg" && can_pass(video),
        packets: encoding_of(video).filter(|_| unfit.is_none()),
        unfit,
        codec,
        width,
        height,
        frames_per_second: stated.or((!live).then_some(FRAMES_PER_SECOND_UNSTATED)),
        live,
        // ffmpeg's `image2`, or `png_pipe` and the like if the name does not tell the kind.
        still: report
            .format
            .format_name
            .as_deref()
            .is_some_and(|name| name == "image2" || name.ends_with("_pipe")),
    })
}

/// The encoding, if coded pictures of this codec may pass unchanged.
fn encoding_of(video: &ReportStream) -> Option<Encoding> {
    match video.codec_name.as_deref()? {
        "h264" => Some(Encoding::H264),
        "hevc" => Some(Encoding::H265),
        "av1" => Some(Encoding::Av1),
        _ => None,
    }
}

/// Why coded pictures cannot pass unchanged, as far as a probe can tell. Further reasons may be in the stream's parameter sets.
fn unfit(video: &ReportStream) -> Option<String> {
    let is_turned = video.side_data_list.iter().any(|data| data.rotation != 0.0);
    let encoding = encoding_of(video)?;
    // AV1 pictures come in display order.
    if encoding != Encoding::Av1 && video.has_b_frames.unwrap_or(0) > 0 {
        Some(Unfit::Reordered.to_string())
    } else if !is_progressive(video) {
        Some(Unfit::Interlaced.to_string())
    } else if is_turned {
        Some("the pictures of the video must be rotated, which its codec cannot do; rotate the camera, or re-encode the file".into())
    } else {
        None
    }
}

/// Whether Motion JPEG passes unchanged. Interlaced, RGB, CMYK and 12-bit pictures are decoded instead, so that every consumer gets a plain JPEG.
fn can_pass(video: &ReportStream) -> bool {
    let plain = matches!(
        video.pix_fmt.as_deref(),
        Some(
            "yuvj420p"
                | "yuvj422p"
                | "yuvj444p"
                | "yuvj440p"
                | "yuvj411p"
                | "yuv420p"
                | "yuv422p"
                | "yuv444p"
                | "yuv440p"
                | "yuv411p"
                | "gray"
        )
    );
    is_progressive(video) && plain
}

fn is_progressive(video: &ReportStream) -> bool {
    matches!(video.field_order.as_deref(), None | Some("progressive" | "unknown"))
}

fn ratio(text: &str) -> Option<f64> {
    let (above, below) = text.split_once('/')?;
    let rate = above.parse::<f64>().ok()? / below.parse::<f64>().ok()?;
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

fn seconds(text: Option<&str>) -> Option<f64> {
    text?.parse().ok().filter(|seconds: &f64| *seconds > 0.0)
}

/// Checks the path of a file or a device, without opening a device.
fn check_path(spec: &SourceSpec) -> Result<(), SourceError> {
    let Some(path) = spec.path() else { return Ok(()) };
    let refuse = |error: &std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => match spec {
            SourceSpec::Device(_) => {
                SourceError::NoDevice { path: path.to_owned(), present: video_devices() }
            }
            _ => SourceError::NoFile { path: path.to_owned() },
        },
        std::io::ErrorKind::PermissionDenied => not_permitted(spec),
        _ => SourceError::Unreadable { source_name: spec.to_string(), detail: error.to_string() },
    };
    let metadata = std::fs::metadata(path).map_err(|error| refuse(&error))?;
    let detail = match spec {
        SourceSpec::File(_) if metadata.is_dir() => "it is a folder: name a file in it",
        SourceSpec::File(_) if !metadata.is_file() => {
            "it is not a regular file; a camera is named /dev/video0"
        }
        SourceSpec::File(_) if metadata.len() == 0 => "the file is empty",
        SourceSpec::Device(_) if metadata.is_file() || metadata.is_dir() => "it is not a device",
        SourceSpec::File(_) => {
            return std::fs::File::open(path).map(drop).map_err(|error| refuse(&error));
        }
        _ => return Ok(()),
    };
    Err(SourceError::Unreadable { source_name: spec.to_string(), detail: detail.to_owned() })
}

fn not_permitted(spec: &SourceSpec) -> SourceError {
    let remedy = match spec {
        SourceSpec::Device(_) => "add the user to the group video (usermod -aG video USER) and log in again",
        SourceSpec::File(_) => "let this user read the file",
        SourceSpec::Url(_) if spec.holds_credentials() => {
            "the camera does not accept this user name and password"
        }
        SourceSpec::Url(_) => {
            "give the camera's USER:PASSWORD with --source-credentials FILE, or in MEZ_SOURCE_CREDENTIALS"
        }
    };
    SourceError::NotPermitted { source_name: spec.to_string(), remedy }
}

fn video_devices() -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir("/dev") else { return Vec::new() };
    let mut devices: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("video"))
        .map(|entry| entry.path())
        .take(16)
        .collect();
    devices.sort();
    devices
}

/// Turns the output of ffmpeg or ffprobe into the error that it means.
pub(super) fn explain(spec: &SourceSpec, stderr: &str) -> SourceError {
    let source_name = spec.to_string();
    let says = |words: &str| stderr.contains(words);
    if says("Device or resource busy") {
        SourceError::Busy { source_name }
    } else if says("Permission denied") || says("401 Unauthorized") || says("403 Forbidden") {
        not_permitted(spec)
    } else {
        let doubt = match spec {
            SourceSpec::File(_) => "is it a complete video file?",
            SourceSpec::Device(_) => "is it a camera, and does it send video?",
            SourceSpec::Url(_) => "is the address correct, and is the camera on?",
        };
        SourceError::Unreadable {
            source_name,
            detail: format!("{doubt} ffmpeg says: {}", last_lines(stderr)),
        }
    }
}

/// The last three lines of a program's output as one line, with passwords removed.
pub(super) fn last_lines(stderr: &str) -> String {
    let mut lines: Vec<&str> = stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.drain(..lines.len().saturating_sub(3));
    if lines.is_empty() { "it gave no reason".to_owned() } else { without_credentials(&lines.join("; ")) }
}

/// Runs a program to its end and returns its output, up to [`PROBE_BYTES_MAX`].
async fn run(
    program: &Path,
    args: Vec<std::ffi::OsString>,
    script: Option<String>,
) -> Result<ProcessOutput, SourceError> {
    let mut child = spawn_child(program, args, script, Stdio::piped()).await?;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let failed =
        |error: std::io::Error| SourceError::Spawn { program: program.to_owned(), detail: error.to_string() };
    let out = child.stdout.take();
    let err = child.stderr.take();
    let read_out = async {
        match out {
            Some(out) => out.take(PROBE_BYTES_MAX).read_to_end(&mut stdout).await.map(drop),
            None => Ok(()),
        }
    };
    let read_err = async {
        match err {
            Some(err) => err.take(PROBE_BYTES_MAX).read_to_end(&mut stderr).await.map(drop),
            None => Ok(()),
        }
    };
    tokio::try_join!(read_out, read_err).map_err(failed)?;
    let status = child.wait().await.map_err(failed)?;
    Ok(ProcessOutput { status, stdout, stderr })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(json: &str) -> Report {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn versions_are_told_apart() {
        for (text, has_fps_mode) in [
            ("ffmpeg version 5.1.9-0+deb12u1 Copyright", true),
            ("ffmpeg version 4.4.2-0ubuntu0.22.04.1 Copyright", false),
            ("ffmpeg version 5.0.1 Copyright", false),
            ("ffmpeg version n7.1 Copyright", true),
            ("ffmpeg version N-118193-g5f38c82536 Copyright", true),
            ("ffmpeg version 8.0 Copyright", true),
            ("something else", true),
        ] {
            assert_eq!(FfmpegVersion::parse(text).has_fps_mode(), has_fps_mode, "{text}");
        }
    }

    #[test]
    fn the_video_stream_is_found_among_others() {
        let spec = SourceSpec::parse("x.mkv").unwrap();
        let report = report(
            r#"{"streams": [
                {"index": 0, "codec_type": "audio", "codec_name": "mp3"},
                {"index": 1, "codec_type": "video", "codec_name": "mjpeg", "width": 9, "height": 9,
                 "disposition": {"attached_pic": 1}},
                {"index": 2, "codec_type": "video", "codec_name": "h264", "width": 1920, "height": 1080,
                 "avg_frame_rate": "30000/1001", "r_frame_rate": "60/1", "disposition": {"attached_pic": 0}}],
                "format": {"duration": "12.5"}}"#,
        );
        let stream = choose_stream(&spec, &report).unwrap();
        assert_eq!((stream.index, stream.width, stream.height), (2, 1920, 1080));
        assert!((stream.frames_per_second.unwrap() - 29.97).abs() < 0.001);
        assert!(!stream.passthrough && !stream.live);
    }

    #[test]
    fn h264_goes_on_as_it_is_unless_its_pictures_are_out_of_order_or_interlaced() {
        let spec = SourceSpec::parse("rtsp://x/y").unwrap();
        let found = |more: &str| {
            let stream =
                r#"{"index": 0, "codec_type": "video", "codec_name": "h264", "width": 9, "height": 9"#;
            let stream =
                choose_stream(&spec, &report(&format!(r#"{{"streams": [{stream}{more}}}]}}"#))).unwrap();
            (stream.packets, stream.unfit)
        };
        let fit = (Some(Encoding::H264), None);
        assert_eq!(found(""), fit);
        assert_eq!(found(r#", "has_b_frames": 0, "field_order": "progressive""#), fit);
        assert_eq!(found(r#", "has_b_frames": 2"#), (None, Some(Unfit::Reordered.to_string())));
        assert_eq!(found(r#", "field_order": "tt""#), (None, Some(Unfit::Interlaced.to_string())));
        assert_eq!(found(r#", "side_data_list": [{"rotation": 0}, {}]"#), fit);
        assert!(
            found(r#", "side_data_list": [{"rotation": -90}]"#).1.is_some_and(|why| why.contains("rotated"))
        );
    }

    #[test]
    fn a_device_is_asked_for_what_crosses_links_as_it_is() {
        let asked = |spec: &str, packets: bool, fps: Option<f64>| {
            let options = SourceOptions { packets, fps, ..SourceOptions::default() };
            compressed(&SourceSpec::parse(spec).unwrap(), &options).collect::<Vec<_>>()
        };
        assert_eq!(asked("/dev/video0", true, None), [DeviceFormat::H264, DeviceFormat::Mjpeg]);
        assert_eq!(asked("/dev/video0", false, None), [DeviceFormat::Mjpeg]);
        assert_eq!(asked("/dev/video0", true, Some(5.0)), [DeviceFormat::Mjpeg], "it is to be thinned out");
        assert_eq!(asked("x.mp4", true, None), []);
    }

    #[test]
    fn a_url_with_a_length_is_a_recording() {
        let with = r#"{"streams": [{"index": 0, "codec_type": "video", "codec_name": "h264", "width": 9, "height": 9,
            "avg_frame_rate": "0/0", "r_frame_rate": "90000/1"}], "format": {"duration": "3"}}"#;
        let without = with.replace(r#""duration": "3""#, "");
        let http = SourceSpec::parse("http://x/y.mp4").unwrap();
        let recording = choose_stream(&http, &report(with)).unwrap();
        assert_eq!((recording.live, recording.frames_per_second), (false, Some(FRAMES_PER_SECOND_UNSTATED)));
        let live = choose_stream(&http, &report(&without)).unwrap();
        assert_eq!((live.live, live.frames_per_second), (true, None));
        assert!(choose_stream(&SourceSpec::parse("rtsp://x/y").unwrap(), &report(with)).unwrap().live);
    }

    #[test]
    fn only_plain_jpeg_passes_untouched() {
        let video = |pix_fmt: &str, field_order: Option<&str>| ReportStream {
            pix_fmt: Some(pix_fmt.into()),
            field_order: field_order.map(Into::into),
            ..ReportStream::default()
        };
        assert!(can_pass(&video("yuvj422p", None)) && can_pass(&video("gray", Some("progressive"))));
        assert!(!can_pass(&video("yuvj422p", Some("tt"))) && !can_pass(&video("gbrp", None)));
        assert!(!can_pass(&video("yuv420p12le", None)));
    }

    #[test]
    fn complaints_are_understood() {
        let device = SourceSpec::parse("/dev/video0").unwrap();
        let busy =
            explain(&device, "[v4l2 @ 0x5] ioctl(VIDIOC_STREAMON): Device or resource busy\n/dev/video0: x");
        assert!(
            matches!(busy, SourceError::Busy { .. }) && busy.to_string().contains("/dev/video0"),
            "{busy}"
        );
        let denied = explain(&device, "/dev/video0: Permission denied");
        assert!(denied.to_string().contains("group video"), "{denied}");
        let url = SourceSpec::parse("rtsp://bob:secret@cam/x").unwrap();
        let unauthorised = explain(&url, "[rtsp @ 0x1] method DESCRIBE failed: 401 Unauthorized\n");
        assert!(unauthorised.to_string().contains("does not accept"), "{unauthorised}");
        let plain = SourceSpec::parse("rtsp://cam/x").unwrap();
        let unauthorised = explain(&plain, "[rtsp @ 0x1] method DESCRIBE failed: 401 Unauthorized\n");
        assert!(unauthorised.to_string().contains("--source-credentials"), "{unauthorised}");
        let other = explain(&url, "a\n\nb\nc\nrtsp://bob:secret@cam/x: Connection refused\n").to_string();
        assert!(
            other.contains("b; c; rtsp://cam/x: Connection refused") && !other.contains("secret"),
            "{other}"
        );
        assert!(explain(&url, "").to_string().contains("no reason"));
    }
}
