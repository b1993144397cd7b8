//! Camera sources with the real ffmpeg: many kinds of files, network cameras, children that die.

#[path = "../api_support/mod.rs"]
mod api_support;
mod children;
mod files;
mod live;
mod onvif;
mod packets;
mod refused;
mod rtsp;
mod support;
mod told;
