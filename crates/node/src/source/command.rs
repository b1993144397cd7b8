//! Builds command lines for `ffmpeg` and `ffprobe`. This module is pure, so it can be tested without devices.

use std::ffi::OsString;

use mez_core::frame::Encoding;

use super::input::{FfmpegVersion, Stream};
use super::spec::SourceSpec;

/// How to open a source, beyond its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InputOptions {
    /// The size to ask a device for, in pixels. `None`: the driver decides.
    pub(super) device_size: Option<(u32, u32)>,
    /// The compressed format to ask a device for. `None`: the driver decides.
    pub(super) device_format: Option<DeviceFormat>,
}

/// Formats to which devices may compress pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeviceFormat {
    H264,
    Mjpeg,
}

impl DeviceFormat {
    /// The name in ffmpeg.
    const fn name(self) -> &'static str {
        match self {
            Self::H264 => "h264",
            Self::Mjpeg => "mjpeg",
        }
    }
}

/// The content of the child's standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// The JPEG images of the source, unchanged, one after the other.
    Jpeg,
    /// Planar 4:2:0 pictures in YUV4MPEG2.
    Pictures,
    /// The packets of the source in this encoding, unchanged, in a container that marks where each ends.
    Packets(Encoding),
}

/// Arguments with which `ffprobe` describes the source as JSON.
pub(super) fn probe_args(spec: &SourceSpec, input: InputOptions) -> Vec<OsString> {
    let mut args = strings(&["-hide_banner", "-v", "error", "-print_format", "json", "-show_entries"]);
    args.push(
        "stream=index,codec_type,codec_name,pix_fmt,width,height,field_order,has_b_frames,avg_frame_rate,r_frame_rate\
         :stream_disposition=attached_pic:stream_side_data=rotation:format=format_name,duration"
            .into(),
    );
    args.extend(input_args(spec, input, None, false));
    args
}

/// Arguments with which `ffmpeg` writes the frames of one stream to standard output.
pub(super) fn read_args(
    spec: &SourceSpec,
    input: InputOptions,
    stream: &Stream,
    output: Output,
    looped: bool,
    version: FfmpegVersion,
) -> Vec<OsString> {
    let mut args = strings(&["-hide_banner", "-nostdin", "-v", "error"]);
    match (looped, stream.still) {
        (false, _) => {}
        (true, false) => args.extend(strings(&["-stream_loop", "-1"])),
        // A still has no start to seek to. Its demuxer repeats it, and takes its file name literally.
        (true, true) => args.extend(strings(&["-f", "image2", "-pattern_type", "none", "-loop", "1"])),
    }
    args.extend(input_args(spec, input, Some(output), stream.live));
    args.extend(strings(&["-map", &format!("0:{}", stream.index), "-an", "-sn", "-dn"]));
    match output {
        Output::Jpeg => args.extend(strings(&["-c:v", "copy", "-flush_packets", "1", "-f", "mjpeg"])),
        Output::Packets(encoding) => {
            // Pictures before the first key frame are wanted too: they show that the source sends, and that it must be asked for a key frame.
            args.extend(strings(&["-c:v", "copy", "-copyinkf"]));
            if encoding == Encoding::H265 {
                // Converts NAL units to start codes; files hold them with lengths.
                args.extend(strings(&["-bsf:v", "hevc_mp4toannexb"]));
            }
            args.extend(strings(&["-flush_packets", "1", "-f", "nut"]));
        }
        Output::Pictures => {
            // Passes every frame once, in order, whatever its timestamp: the pacing is done here.
            args.extend(strings(if version.has_fps_mode() {
                &["-fps_mode", "passthrough"]
            } else {
                &["-vsync", "passthrough"]
            }));
            // JPEG is full-range BT.601. Changing only the range would give wrong colours for HD video (BT.709).
            args.extend(strings(&["-vf", "scale=out_color_matrix=bt601:out_range=full,format=yuv420p"]));
            args.extend(strings(&["-flush_packets", "1", "-f", "yuv4mpegpipe"]));
        }
    }
    args.push("pipe:1".into());
    args
}

/// Protocols that a playlist from a pipe may use: all that ffmpeg needs for the schemes of sources.
const PROTOCOLS: &str =
    "pipe,tcp,udp,udplite,tls,rtp,srtp,rtmp,rtmps,ffrtmphttp,http,https,httpproxy,crypto,data,srt";

/// The standard input of the programs if the source's address holds a secret: a playlist with one entry. Only the
/// child can read the pipe. Arguments are public, and other processes of the same user can read the environment.
pub(super) fn script(spec: &SourceSpec) -> Option<String> {
    let url = spec.secret_url()?;
    // The URL contains no quote: see `SourceSpec::parse`.
    let mut script = format!("ffconcat version 1.0\nfile '{url}'\n");
    if spec.is_always_live() {
        // Same value as on a command line without secrets.
        script.push_str("option analyzeduration 1000000\n");
    }
    if matches!(spec.scheme(), Some("rtsp" | "rtsps")) {
        script.push_str("option rtsp_transport tcp\n");
    }
    Some(script)
}

/// The arguments up to and including the input. `output`: what the input is read for; `None` for a probe.
fn input_args(spec: &SourceSpec, input: InputOptions, output: Option<Output>, live: bool) -> Vec<OsString> {
    let mut args = Vec::new();
    if spec.is_always_live() {
        // Frames that arrived while ffmpeg probed the stream are old, so they are discarded. Packets are not:
        // the first key frame may be among them, and all later packets depend on it.
        let throws_away = !matches!(output, Some(Output::Packets(_)));
        args.extend(strings(if throws_away { &["-fflags", "nobuffer"] } else { &[] }));
        // Probe for one second instead of five.
        args.extend(strings(&["-analyzeduration", "1000000"]));
    }
    if live && output == Some(Output::Pictures) {
        // Frame threads delay each picture by a frame per thread.
        args.extend(strings(&["-thread_type", "slice"]));
    }
    match spec {
        SourceSpec::File(path) => {
            // A playlist from elsewhere must not make this machine fetch URLs.
            args.extend(strings(&["-protocol_whitelist", "file,crypto,data", "-i"]));
            // The prefix makes ffmpeg take a name such as `concat:a` or `-y` as a file name.
            let mut name = OsString::from("file:");
            name.push(path);
            args.push(name);
        }
        SourceSpec::Device(path) => {
            args.extend(strings(&["-f", "v4l2"]));
            if let Some(format) = input.device_format {
                args.extend(strings(&["-input_format", format.name()]));
            }
            if let Some((width, height)) = input.device_size {
                args.extend(strings(&["-video_size", &format!("{width}x{height}")]));
            }
            args.push("-i".into());
            args.push(path.into());
        }
        // Arguments are public: see `script`.
        SourceSpec::Url(_) if spec.secret_url().is_some() => {
            args.extend(strings(&[
                "-f",
                "concat",
                "-safe",
                "0",
                "-protocol_whitelist",
                PROTOCOLS,
                "-i",
                "pipe:0",
            ]));
        }
        SourceSpec::Url(url) => {
            if matches!(spec.scheme(), Some("rtsp" | "rtsps")) {
                // Over UDP, a lost packet damages pictures until the next key frame.
                args.extend(strings(&["-rtsp_transport", "tcp"]));
            }
            args.extend(strings(&["-i", url]));
        }
    }
    args
}

fn strings(args: &[&str]) -> Vec<OsString> {
    args.iter().map(OsString::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: InputOptions = InputOptions { device_size: None, device_format: None };
    const NEW: FfmpegVersion = FfmpegVersion::NEWEST;

    fn stream(live: bool) -> Stream {
        Stream {
            index: 2,
            codec: "h264".into(),
            width: 64,
            height: 48,
            frames_per_second: None,
            passthrough: false,
            packets: None,
            unfit: None,
            live,
            still: false,
        }
    }

    fn line(args: &[OsString]) -> String {
        args.iter().map(|arg| arg.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_device_is_asked_for_the_pictures_it_has_compressed_itself() {
        let spec = SourceSpec::parse("/dev/video3").unwrap();
        let input =
            InputOptions { device_size: Some((1920, 1080)), device_format: Some(DeviceFormat::Mjpeg) };
        assert_eq!(
            line(&read_args(&spec, input, &stream(true), Output::Jpeg, false, NEW)),
            "-hide_banner -nostdin -v error -fflags nobuffer -analyzeduration 1000000 -f v4l2 -input_format mjpeg \
             -video_size 1920x1080 -i /dev/video3 -map 0:2 -an -sn -dn -c:v copy -flush_packets 1 -f mjpeg pipe:1"
        );
        assert!(line(&probe_args(&spec, PLAIN)).ends_with("-f v4l2 -i /dev/video3"));
        let input = InputOptions { device_format: Some(DeviceFormat::H264), ..PLAIN };
        assert_eq!(
            line(&read_args(&spec, input, &stream(true), Output::Packets(Encoding::H264), false, NEW)),
            "-hide_banner -nostdin -v error -analyzeduration 1000000 -f v4l2 -input_format h264 \
             -i /dev/video3 -map 0:2 -an -sn -dn -c:v copy -copyinkf -flush_packets 1 -f nut pipe:1"
        );
    }

    #[test]
    fn packets_are_copied() {
        let spec = SourceSpec::parse("rtsp://cam/x").unwrap();
        let args = line(&read_args(&spec, PLAIN, &stream(true), Output::Packets(Encoding::H264), false, NEW));
        assert!(
            args.ends_with("-map 0:2 -an -sn -dn -c:v copy -copyinkf -flush_packets 1 -f nut pipe:1"),
            "{args}"
        );
        assert!(!args.contains("nobuffer"), "the first key frame may be thrown away: {args}");
        assert!(!args.contains("thread_type"), "nothing is decoded");
        let args = line(&read_args(&spec, PLAIN, &stream(true), Output::Packets(Encoding::H265), false, NEW));
        assert!(
            args.ends_with("-c:v copy -copyinkf -bsf:v hevc_mp4toannexb -flush_packets 1 -f nut pipe:1"),
            "{args}"
        );
    }

    #[test]
    fn rtsp_goes_over_tcp_and_is_not_delayed() {
        let spec = SourceSpec::parse("rtsp://cam/x").unwrap();
        let args = line(&read_args(&spec, PLAIN, &stream(true), Output::Pictures, false, NEW));
        assert_eq!(
            args,
            "-hide_banner -nostdin -v error -fflags nobuffer -analyzeduration 1000000 -thread_type slice \
             -rtsp_transport tcp -i rtsp://cam/x -map 0:2 -an -sn -dn -fps_mode passthrough \
             -vf scale=out_color_matrix=bt601:out_range=full,format=yuv420p -flush_packets 1 -f yuv4mpegpipe pipe:1"
        );
    }

    /// Neither a password nor a query, which may hold a password too, is on a command line.
    #[test]
    fn secrets_go_through_a_pipe() {
        for secret in ["rtsp://u:it's@cam/x", "rtsp://cam/x?password=it's", "http://u:it's@cam/x"] {
            let spec = SourceSpec::parse(secret).unwrap();
            for args in [
                line(&read_args(&spec, PLAIN, &stream(true), Output::Pictures, false, NEW)),
                line(&probe_args(&spec, PLAIN)),
            ] {
                assert!(
                    args.contains("-f concat -safe 0 -protocol_whitelist pipe,")
                        && args.contains("-i pipe:0")
                );
                assert!(!args.contains("it's") && !args.contains("cam"), "{args}");
            }
            let script = script(&spec).unwrap();
            assert!(script.contains(&format!("file '{}'\n", secret.replace('\'', "%27"))), "{script}");
            assert_eq!(script.contains("option rtsp_transport tcp\n"), secret.starts_with("rtsp"));
        }
        assert_eq!(script(&SourceSpec::parse("rtsp://cam/x").unwrap()), None);
    }

    #[test]
    fn a_file_stays_a_file_whatever_its_name() {
        for name in ["-y", "concat:a|b", "http_x", "a b.avi"] {
            let spec = SourceSpec::parse(name).unwrap();
            let args = line(&read_args(&spec, PLAIN, &stream(false), Output::Jpeg, true, NEW));
            assert!(
                args.contains(&format!("-protocol_whitelist file,crypto,data -i file:{name} -map")),
                "{args}"
            );
            assert!(args.contains("-stream_loop -1") && !args.contains("nobuffer"), "{args}");
        }
    }

    /// Looping a still by seeking would start ffmpeg again for every frame.
    #[test]
    fn a_still_is_repeated_by_its_reader() {
        let spec = SourceSpec::parse("a%03d.png").unwrap();
        let still = Stream { still: true, ..stream(false) };
        let args = line(&read_args(&spec, PLAIN, &still, Output::Pictures, true, NEW));
        assert!(args.contains("-f image2 -pattern_type none -loop 1 "), "{args}");
        assert!(!args.contains("-stream_loop"), "{args}");
        let args = line(&read_args(&spec, PLAIN, &still, Output::Pictures, false, NEW));
        assert!(!args.contains("-loop"), "{args}");
    }

    #[test]
    fn an_older_ffmpeg_is_spoken_to_in_its_own_words() {
        let spec = SourceSpec::parse("x.mp4").unwrap();
        let version = FfmpegVersion::parse("ffmpeg version 4.4.2-0ubuntu0.22.04.1 Copyright");
        let args = line(&read_args(&spec, PLAIN, &stream(false), Output::Pictures, false, version));
        assert!(args.contains("-vsync passthrough") && !args.contains("-fps_mode"), "{args}");
    }
}
