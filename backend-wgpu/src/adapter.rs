//! The GPUs of this machine, as the drivers list them.

use std::fmt;

/// What a driver says of a GPU, or of a CPU that stands in for one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Adapter {
    /// Its name.
    pub name: String,
    /// The API it is reached through: `vulkan`, `metal` or `dx12`.
    pub api: &'static str,
    /// The driver and its version, where known.
    pub driver: String,
    /// Whether it computes on the CPU.
    pub software: bool,
}

impl fmt::Display for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.name, self.api)?;
        if !self.driver.is_empty() {
            write!(f, ", {}", self.driver)?;
        }
        if self.software {
            f.write_str(", software")?;
        }
        f.write_str(")")
    }
}

impl From<wgpu::AdapterInfo> for Adapter {
    fn from(info: wgpu::AdapterInfo) -> Adapter {
        Adapter {
            driver: [info.driver, info.driver_info].join(" ").trim().to_owned(),
            api: info.backend.to_str(),
            software: info.device_type == wgpu::DeviceType::Cpu,
            name: info.name,
        }
    }
}

/// The adapters of this machine, those with memory of their own first. Empty where no driver is installed; the
/// environment variable `WGPU_BACKEND` limits the APIs that are asked.
pub fn adapters() -> Vec<Adapter> {
    pollster::block_on(list()).into_iter().map(|(_, adapter)| adapter).collect()
}

/// The adapters, best first.
pub(crate) async fn list() -> Vec<(wgpu::Adapter, Adapter)> {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle_from_env();
    // A table that does not fit is then an error, not memory taken from the host behind the driver's back. Heaps keep
    // a little for the driver itself.
    descriptor.memory_budget_thresholds.for_resource_creation = Some(97);
    let instance = wgpu::Instance::new(descriptor);
    let mut adapters: Vec<_> = instance.enumerate_adapters(wgpu::Backends::all()).await;
    adapters.sort_by_key(|adapter| match adapter.get_info().device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    });
    adapters.into_iter().map(|adapter| (adapter.clone(), adapter.get_info().into())).collect()
}
