//! Writes seeded values and their codes in every published format to a folder, for `tests/formats.py` to compare with
//! an independent implementation.

use std::path::Path;

use condprog_checkpoint::fp8;
use condprog_checkpoint::fp8::e4m3_from_f64;
use condprog_eval::method::formats::{MX_BLOCK, Mxfp4, NV_BLOCK, Nvfp4, e2m1_from_f64};
use condprog_eval::noise::Noise;

const BLOCKS: usize = 20_000;

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).expect("usage: formats FOLDER");
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder)?;
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes);

    // Blocks of 32 whose deviations span 2^-30 to 2^30, every 50th all zero, every 7th with short mantissas, so that
    // ties occur.
    let mut noise = Noise::new(2026);
    let mut values = Vec::new();
    for block in 0..BLOCKS {
        let unit = libm::exp2((block % 61) as f64 - 30.0);
        for _ in 0..MX_BLOCK {
            let normal = noise.normal();
            let value = match block {
                b if b % 50 == 0 => 0.0,
                b if b % 7 == 0 => (normal * 8.0).round() / 8.0 * unit,
                _ => normal * unit,
            };
            values.push(value as f32);
        }
    }
    write("values.f32", &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())?;

    let mut codes = vec![0; values.len()];
    let blocks = values.chunks_exact(MX_BLOCK).zip(codes.chunks_exact_mut(MX_BLOCK));
    let scales: Vec<u8> = blocks.map(|(block, codes)| Mxfp4 { search: false }.encode(block, codes)).collect();
    write("mxfp4.codes", &codes)?;
    write("mxfp4.scales", &scales)?;

    let blocks = values.chunks_exact(fp8::GROUP).zip(codes.chunks_exact_mut(fp8::GROUP));
    let scales: Vec<u8> = blocks.map(|(block, codes)| fp8::encode_group(block, codes)).collect();
    write("fp8.codes", &codes)?;
    write("fp8.scales", &scales)?;

    // One table scale cannot serve deviations this far apart: NVFP4 is checked on the blocks of deviation 1 to 16.
    let near: Vec<f32> = values
        .chunks_exact(MX_BLOCK)
        .enumerate()
        .filter(|(block, _)| (30..35).contains(&(block % 61)))
        .flat_map(|(_, values)| values.iter().copied())
        .collect();
    let largest = near.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    let format = Nvfp4::of_largest(largest, false);
    let mut codes = vec![0; near.len()];
    let blocks = near.chunks_exact(NV_BLOCK).zip(codes.chunks_exact_mut(NV_BLOCK));
    let scales: Vec<u8> = blocks.map(|(block, codes)| format.encode(block, codes)).collect();
    write("nvfp4.values", &near.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())?;
    write("nvfp4.codes", &codes)?;
    write("nvfp4.scales", &scales)?;
    write("nvfp4.global", &format.global.to_le_bytes())?;

    // Single numbers over and beyond the range of both element formats.
    let singles: Vec<f32> =
        (0..100_000).map(|_| (noise.normal() * libm::exp2(10.0 * noise.unit() - 3.0)) as f32).collect();
    write("single.f32", &singles.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())?;
    write("single.e2m1", &singles.iter().map(|&value| e2m1_from_f64(f64::from(value))).collect::<Vec<_>>())?;
    write("single.e4m3", &singles.iter().map(|&value| e4m3_from_f64(f64::from(value.abs()))).collect::<Vec<_>>())
}
