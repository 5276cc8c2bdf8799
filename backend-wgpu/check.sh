#!/bin/sh
# All checks of the WebGPU backend: the kernel without a device, the crate on two software Vulkan drivers, both
# required, and the page in a browser. Installs the drivers and the browser where apt has them and they are missing.
set -eu
cd "$(dirname "$0")/.."

lavapipe=/usr/share/vulkan/icd.d/lvp_icd.x86_64.json
swiftshader=/usr/lib/chromium/vk_swiftshader_icd.json

if ! [ -e "$lavapipe" ] || ! [ -e "$swiftshader" ] || ! command -v chromium-headless-shell >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends libvulkan1 mesa-vulkan-drivers chromium-headless-shell >/dev/null
fi

cargo test -p condprog-kernels --test wgsl
cargo test -p condprog-wgpu --doc

# Loaders complain on stderr without it.
export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-/tmp}"
export WGPU_BACKEND=vulkan CONDPROG_REQUIRE=wgpu

# The adapter's name makes sure that it is the driver meant. The mutations, which are ignored elsewhere, are of the kernel,
# not of the driver: once is enough.
echo "== lavapipe"
VK_ICD_FILENAMES=$lavapipe WGPU_ADAPTER_NAME=llvmpipe \
    cargo test -p condprog-wgpu --tests -- --show-output --include-ignored
echo "== SwiftShader"
VK_ICD_FILENAMES=$swiftshader WGPU_ADAPTER_NAME=SwiftShader \
    cargo test -p condprog-wgpu --tests -- --show-output

echo "== headless Chromium"
conformance/web/check.py
