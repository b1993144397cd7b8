//! Camera sources against the real ffmpeg: files of many kinds, network cameras, children that die.

mod children;
mod files;
mod live;
mod refused;
mod support;
