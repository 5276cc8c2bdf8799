//! The WGSL kernel without an adapter: it parses and validates with no capability, translates to every language that
//! a driver takes, has no float in it, and carries core's numbers.

use condprog_core::{Layout, Program, Rate, Scale, record, scale, trellis};
use condprog_kernels::wgsl;
use naga::back::{self, pipeline_constants::process_overrides};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{Expression, Function, Handle, Literal, Module, ScalarKind, ShaderStage};

const ENTRY_POINTS: [&str; 3] = [wgsl::DECODE_BF16, wgsl::DECODE_F16, wgsl::DECODE_F32];

/// Parses and validates as baseline WebGPU does.
fn validate(source: &str) -> Result<(Module, ModuleInfo), String> {
    let module = naga::front::wgsl::parse_str(source).map_err(|error| error.emit_to_string(source))?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::empty())
        .validate(&module)
        .map_err(|error| error.emit_to_string(source))?;
    Ok((module, info))
}

fn kernel() -> (Module, ModuleInfo) {
    validate(wgsl::DECODE).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn validates_without_capabilities() {
    let (module, _) = kernel();
    let names: Vec<_> = module.entry_points.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ENTRY_POINTS);
    for entry in &module.entry_points {
        assert_eq!(entry.stage, ShaderStage::Compute);
        assert_eq!(entry.workgroup_size, [wgsl::WORKGROUP, 1, 1]);
    }
    const { assert!(wgsl::WORKGROUP <= 256) };
}

#[test]
fn translates_to_spirv_with_the_shader_capability_alone() {
    let (module, info) = kernel();
    for entry_point in ENTRY_POINTS {
        let (module, info) = process_overrides(&module, &info, None, &Default::default()).unwrap();
        let options = back::spv::Options { lang_version: (1, 3), ..Default::default() };
        let entry = back::spv::PipelineOptions { shader_stage: ShaderStage::Compute, entry_point: entry_point.into() };
        let words = back::spv::write_vec(&module, &info, &options, Some(&entry)).unwrap();
        // OpCapability is opcode 17 and comes first; Shader is capability 1.
        let mut capabilities = Vec::new();
        let mut at = 5;
        while at < words.len() {
            let (opcode, length) = (words[at] & 0xffff, words[at] >> 16);
            if opcode == 17 {
                capabilities.push(words[at + 1]);
            }
            at += length as usize;
        }
        assert_eq!(capabilities, [1], "{entry_point}");
    }
}

#[test]
fn translates_to_metal_hlsl_and_glsl() {
    let (module, info) = kernel();
    let (module, info) = process_overrides(&module, &info, None, &Default::default()).unwrap();

    let options = back::msl::Options { lang_version: (2, 0), ..Default::default() };
    let (metal, translation) = back::msl::write_string(&module, &info, &options, &Default::default()).unwrap();
    assert_eq!(translation.entry_point_names.len(), ENTRY_POINTS.len());
    assert!(translation.entry_point_names.iter().all(Result::is_ok));

    let mut hlsl = String::new();
    let (options, pipeline) = (back::hlsl::Options::default(), back::hlsl::PipelineOptions::default());
    back::hlsl::Writer::new(&mut hlsl, &options, &pipeline).write(&module, &info, None).unwrap();

    let mut texts = vec![metal, hlsl];
    for entry_point in ENTRY_POINTS {
        let mut glsl = String::new();
        let options = back::glsl::Options {
            version: back::glsl::Version::Embedded { version: 310, is_webgl: false },
            ..Default::default()
        };
        let pipeline = back::glsl::PipelineOptions {
            shader_stage: ShaderStage::Compute,
            entry_point: entry_point.into(),
            multiview: None,
        };
        back::glsl::Writer::new(&mut glsl, &module, &info, &options, &pipeline, Default::default())
            .unwrap()
            .write()
            .unwrap();
        texts.push(glsl);
    }
    // The translators write no float either. (GLSL ES must state a default precision.)
    for text in texts {
        let code = text.replace("precision highp float;", "");
        assert!(code.len() > 1000 && !code.contains("float") && !code.contains("half"), "{code}");
    }
}

fn functions(module: &Module) -> impl Iterator<Item = &Function> {
    let entries = module.entry_points.iter().map(|entry| &entry.function);
    module.functions.iter().map(|(_, function)| function).chain(entries)
}

/// What in a module is of a float type.
fn floats(module: &Module) -> Vec<String> {
    let is_float = |kind| matches!(kind, ScalarKind::Float | ScalarKind::AbstractFloat);
    let mut found = Vec::new();
    for (_, ty) in module.types.iter() {
        if ty.inner.scalar_kind().is_some_and(is_float) {
            found.push(format!("{ty:?}"));
        }
    }
    let locals = functions(module).flat_map(|function| function.expressions.iter());
    for (_, expression) in locals.chain(module.global_expressions.iter()) {
        let float = match *expression {
            Expression::Literal(literal) => is_float(literal.scalar().kind),
            Expression::As { kind, .. } => is_float(kind),
            _ => false,
        };
        if float {
            found.push(format!("{expression:?}"));
        }
    }
    found
}

#[test]
fn contains_no_float() {
    assert_eq!(floats(&kernel().0), Vec::<String>::new());
}

#[test]
fn a_float_would_be_found() {
    for float in ["let x = 1.5;", "let x = 2f;", "let x = f32(id.x);", "var x: f32;", "let x = bitcast<f32>(id.x);"] {
        let source =
            format!("@compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{ {float} }}");
        let (module, _) = validate(&source).unwrap();
        assert!(!floats(&module).is_empty(), "{float}");
    }
}

#[test]
fn what_needs_a_feature_is_refused() {
    for source in [
        "enable f16; @compute @workgroup_size(1) fn main() { let x = 1.0h; }",
        "@compute @workgroup_size(1) fn main() { let x = u64(1); }",
        "var<immediate> x: u32; @compute @workgroup_size(1) fn main() { let y = x; }",
    ] {
        assert!(validate(source).is_err(), "{source}");
    }
}

fn unsigned(module: &Module, expression: Handle<Expression>) -> u32 {
    match module.global_expressions[expression] {
        Expression::Literal(Literal::U32(value)) => value,
        ref other => panic!("not a u32: {other:?}"),
    }
}

fn constant(module: &Module, name: &str) -> Handle<Expression> {
    let named = |name_of: &Option<String>| name_of.as_deref() == Some(name);
    module.constants.iter().find(|(_, constant)| named(&constant.name)).unwrap_or_else(|| panic!("no {name}")).1.init
}

#[test]
fn numbers_are_those_of_core_and_of_the_crate() {
    let (module, _) = kernel();
    let number = |name| unsigned(&module, constant(&module, name));

    let variable = module.global_variables.iter().find(|(_, variable)| variable.name.as_deref() == Some("LEVELS"));
    let init = variable.and_then(|(_, variable)| variable.init).expect("LEVELS has its values");
    let Expression::Compose { ref components, .. } = module.global_expressions[init] else {
        panic!("LEVELS is not an array");
    };
    let levels: Vec<u8> = components.iter().flat_map(|&word| unsigned(&module, word).to_le_bytes()).collect();
    assert_eq!(levels, *Program::default().levels());

    assert_eq!(number("STATE_BITS"), trellis::STATE_BITS);
    assert_eq!(number("MANTISSA_BITS"), scale::MANTISSA_BITS);
    // alpha of exponent field x and mantissa 0 is 2^MANTISSA_BITS * 2^(x - ALPHA_BIAS): 1 where both exponents meet.
    let one = Scale::from_bits(((number("ALPHA_BIAS") - scale::MANTISSA_BITS) << scale::MANTISSA_BITS) as u16);
    assert_eq!(one.alpha(), 1.0);
    // The kernel finds the scale field in the last two bytes of a record.
    assert_eq!(record::SCALE_BYTES, 2);

    assert_eq!(number("WORKGROUP"), wgsl::WORKGROUP);
    assert_eq!(number("GROUP"), wgsl::GROUP);
    assert_eq!(number("MISSING"), wgsl::MISSING);
    let overrides: Vec<_> = module.overrides.iter().map(|(_, o)| o.name.as_deref()).collect();
    assert_eq!(overrides, [Some(wgsl::GROUPS_PER_THREAD)]);
}

/// What the kernel's comments claim of a group: it starts at a whole bit, and its window fits 64 bits.
#[test]
fn a_group_starts_at_a_whole_bit_and_fits_its_window() {
    for rate in Rate::all() {
        for group in 0..64 {
            let first = group * wgsl::GROUP;
            assert_eq!(rate.bit_offset(first), group * (wgsl::GROUP * rate.quarters() / 4));
            for i in 0..wgsl::GROUP {
                let into = rate.bit_offset(first + i) - rate.bit_offset(first);
                assert_eq!(into, i * rate.quarters() / 4);
                assert!(into < 32 && into + trellis::STATE_BITS <= 64);
            }
        }
    }
    // Rows and records of one binding are counted in u32 bits.
    let widest = Layout::new(trellis::MAX_DIM, Rate::MAX).unwrap();
    assert!((128u64 << 20) * 8 + widest.code_bits() as u64 <= u64::from(u32::MAX));
}
