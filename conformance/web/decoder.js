// Conditional Program through the browser's WebGPU: the project's kernel as it is, one table of one layout at a time.

/** Number formats: the kernel's entry point and the bytes of a value. */
export const DTYPES = {
  bf16: { entryPoint: "decode_bf16", bytes: 2 },
  f16: { entryPoint: "decode_f16", bytes: 2 },
  f32: { entryPoint: "decode_f32", bytes: 4 },
};

/** Bits of a code, and bytes of a record: the code and two scale bytes. `rate` is in quarter bits per value. */
export function layout(dim, rate) {
  const codeBits = (dim * rate) / 4;
  return { dim, rate, codeBits, recordBytes: Math.ceil(codeBits / 8) + 2 };
}

/** A device with the kernel compiled for it. */
export class Gpu {
  /** Opens the default adapter with WebGPU's default limits. `source` is the text of decode.wgsl. */
  static async open(source) {
    if (!navigator.gpu) {
      throw new Error("this browser has no WebGPU (a secure origin is needed: https or localhost)");
    }
    const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
    if (!adapter) {
      throw new Error("this browser finds no WebGPU adapter");
    }
    const gpu = new Gpu();
    gpu.info = adapter.info ?? {};
    gpu.software = gpu.info.isFallbackAdapter ?? adapter.isFallbackAdapter ?? false;
    gpu.device = await adapter.requestDevice();

    // Numbers that the kernel defines are read from it.
    const number = (name) => Number(new RegExp(`const ${name}: u32 = (\\w+);`).exec(source)[1]);
    gpu.workgroup = number("WORKGROUP");
    gpu.group = number("GROUP");
    gpu.missing = number("MISSING");
    // A software adapter pays for each thread: it takes whole rows (of at most 2^16 values), hardware a group at a time.
    gpu.groupsPerThread = gpu.software ? 65536 / gpu.group : 1;

    gpu.device.pushErrorScope("validation");
    const bindings = (...types) => gpu.device.createBindGroupLayout({
      entries: types.map((type, binding) => ({ binding, visibility: GPUShaderStage.COMPUTE, buffer: { type } })),
    });
    gpu.part = bindings("read-only-storage", "uniform");
    gpu.request = bindings("read-only-storage", "storage");
    const layout = gpu.device.createPipelineLayout({ bindGroupLayouts: [gpu.part, gpu.request] });
    const module = gpu.device.createShaderModule({ code: source });
    const constants = { groups_per_thread: gpu.groupsPerThread };
    gpu.pipelines = {};
    for (const [dtype, { entryPoint }] of Object.entries(DTYPES)) {
      gpu.pipelines[dtype] = await gpu.device.createComputePipelineAsync({
        layout,
        compute: { module, entryPoint, constants },
      });
    }
    const error = await gpu.device.popErrorScope();
    if (error) {
      throw new Error(error.message);
    }
    return gpu;
  }

  /** What the browser tells of the adapter. */
  get name() {
    const { vendor, architecture, device, description } = this.info;
    const parts = [description || device, [vendor, architecture].filter(Boolean).join(" ")].filter(Boolean);
    return `${parts.join(", ") || "not named by this browser"}${this.software ? " (software)" : ""}`;
  }

  buffer(size, usage) {
    return this.device.createBuffer({ size, usage });
  }
}

/** A table of one layout on the device. */
export class Table {
  constructor(gpu, layout, records) {
    this.gpu = gpu;
    this.layout = layout;
    // Whole words, and the 12 bytes that the kernel may read behind the last record.
    const padded = new Uint8Array(Math.ceil(records.length / 4) * 4 + 12);
    padded.set(records);
    this.records = gpu.buffer(padded.length, GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST);
    gpu.device.queue.writeBuffer(this.records, 0, padded);
    const { dim, rate, codeBits, recordBytes } = layout;
    const part = new Uint32Array([dim, rate, codeBits, recordBytes, 0, 0, 0, 0]);
    this.part = gpu.buffer(part.byteLength, GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST);
    gpu.device.queue.writeBuffer(this.part, 0, part);
    this.group = gpu.device.createBindGroup({
      layout: gpu.part,
      entries: [
        { binding: 0, resource: { buffer: this.records } },
        { binding: 1, resource: { buffer: this.part } },
      ],
    });
  }

  destroy() {
    this.records.destroy();
    this.part.destroy();
  }
}

/** Buffers for requests of up to `rows` rows of a table. */
export class Request {
  constructor(table, dtype, rows) {
    const { gpu, layout } = table;
    this.table = table;
    this.dtype = dtype;
    this.groups = Math.ceil(layout.dim / gpu.group);
    this.rowBytes = this.groups * gpu.group * DTYPES[dtype].bytes;
    this.entries = gpu.buffer(8 * (1 + rows), GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST);
    this.output = gpu.buffer(rows * this.rowBytes, GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC);
    this.readback = gpu.buffer(rows * this.rowBytes, GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST);
    this.group = gpu.device.createBindGroup({
      layout: gpu.request,
      entries: [
        { binding: 0, resource: { buffer: this.entries } },
        { binding: 1, resource: { buffer: this.output } },
      ],
    });
  }

  /** The rows of records, in the order asked, as bytes; a negative record gives zeros. */
  async decode(records) {
    const { gpu, layout } = this.table;
    const entries = new Uint32Array(2 * (1 + records.length));
    entries.set([1, records.length]);
    records.forEach((record, place) => entries.set([record < 0 ? gpu.missing : record, place], 2 * (1 + place)));
    gpu.device.queue.writeBuffer(this.entries, 0, entries);

    const threadsPerRow = Math.ceil(this.groups / gpu.groupsPerThread);
    const bytes = records.length * this.rowBytes;
    const encoder = gpu.device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    pass.setPipeline(gpu.pipelines[this.dtype]);
    pass.setBindGroup(0, this.table.group);
    pass.setBindGroup(1, this.group);
    pass.dispatchWorkgroups(Math.ceil((records.length * threadsPerRow) / gpu.workgroup));
    pass.end();
    encoder.copyBufferToBuffer(this.output, 0, this.readback, 0, bytes);
    gpu.device.queue.submit([encoder.finish()]);

    await this.readback.mapAsync(GPUMapMode.READ, 0, bytes);
    const padded = new Uint8Array(this.readback.getMappedRange(0, bytes));
    const row = layout.dim * DTYPES[this.dtype].bytes;
    const rows = new Uint8Array(records.length * row);
    for (let i = 0; i < records.length; i++) {
      rows.set(padded.subarray(i * this.rowBytes, i * this.rowBytes + row), i * row);
    }
    this.readback.unmap();
    return rows;
  }

  destroy() {
    this.entries.destroy();
    this.output.destroy();
    this.readback.destroy();
  }
}
