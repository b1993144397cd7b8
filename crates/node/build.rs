//! Generates the messages and services of `proto/mez/v1/mez.proto`, and the description of an exported image, without an installed protoc.

use std::env;
use std::error::Error;
use std::fs;
use std::path::PathBuf;

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["mez/v1/mez.proto"], ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // What a file of another system says of the messages in it.
    let image = protox::compile(["foxglove/CompressedImage.proto"], ["proto"])?;
    fs::write(out.join("foxglove.CompressedImage.bin"), image.encode_to_vec())?;
    // Reflection serves the same descriptors, comments included.
    fs::write(out.join("mez.v1.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        // The generated function that dials is called `connect`, as is one of our calls.
        .build_transport(false)
        // Payloads are reference-counted: a frame out of a log is not copied to become a message.
        .bytes(".")
        // Boxed, an event costs what its smallest variant costs to move, not what a frame's description does.
        .boxed(".mez.v1.SubscribeEvent.event.frame")
        .compile_fds(descriptors)?;
    Ok(())
}
