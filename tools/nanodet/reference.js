// Runs NanoDet with TensorFlow.js, for compare.py: node reference.js MODELS PICTURE OUT (files of 32-bit floats).
const fs = require("fs");
const tf = require("@tensorflow/tfjs");

const buffer = (file) => {
  const bytes = fs.readFileSync(file);
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
};

async function main(models, picture, out) {
  await tf.setBackend("cpu");
  const told = JSON.parse(fs.readFileSync(`${models}/nanodet.json`));
  const model = await tf.loadGraphModel({
    load: async () => ({
      format: told.format,
      modelTopology: told.modelTopology,
      signature: told.signature,
      weightSpecs: told.weightsManifest[0].weights,
      weightData: buffer(`${models}/nanodet.bin`),
    }),
  });
  const names = ["Identity", "Identity_1", "Identity_2", "Identity_3", "Identity_4", "Identity_5"];
  const input = tf.tensor(new Float32Array(buffer(picture)), [1, 3, 416, 416]);
  const results = model.execute({ input_1: input }, names);
  fs.writeFileSync(out, Buffer.concat(results.map((result) => Buffer.from(result.dataSync().buffer))));
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
