//! The conformance suite, where there is a device.

use condprog_conformance::decoder_suite;
use condprog_cuda::{CudaDecoder, Device, Placement};

decoder_suite!(device_memory, "cuda", Device = Device::open(0), |device, table| CudaDecoder::new(
    device,
    table,
    Placement::Device
));

decoder_suite!(host_memory, "cuda", Device = Device::open(0), |device, table| CudaDecoder::new(
    device,
    table,
    Placement::Host
));

decoder_suite!(split, "cuda", Device = Device::open(0), |device, table| CudaDecoder::new(
    device,
    table,
    Placement::Split { device_share: 0.4 }
));
