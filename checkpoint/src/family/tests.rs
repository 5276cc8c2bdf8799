use proptest::prelude::*;

use super::*;

fn names(table: &FamilyTable) -> impl Iterator<Item = &str> {
    table.parts.iter().map(String::as_str)
}

/// The one table of Qwen's or LongCat's.
fn only(family: Family) -> FamilyTable {
    family.published().remove(0).table
}

#[test]
fn published_tables_are_those_known() {
    let facts = [(Family::DeepseekV41, 768_022_850, 202_758_032_400), (Family::Qwen38, 320_001_536, 102_400_491_520)];
    let facts = facts.into_iter().chain([(Family::LongcatFlash, 122_683_536, 62_813_970_432)]);
    for (family, rows, bytes) in facts {
        let published = family.published();
        assert_eq!(published.iter().map(PublishedTable::rows).sum::<u64>(), rows, "{family}");
        assert_eq!(published.iter().map(|table| table.rows() * table.row_bytes).sum::<u64>(), bytes, "{family}");
        // Found by their names, among others, in any order.
        let mut all: Vec<&str> = published.iter().flat_map(|table| names(&table.table)).collect();
        all.extend(["model.embed_tokens.weight", "layers.1.engram.embed.scale"]);
        all.reverse();
        assert_eq!(Family::detect(all.iter().copied()), Ok(Some(family)));
        let tables: Vec<_> = published.iter().map(|table| table.table.clone()).collect();
        assert_eq!(family.tables(all.into_iter(), None), Ok(tables));
        assert_eq!(family.name().parse(), Ok(family));
    }
    assert_eq!(Family::ALL.map(Family::rows_per_token), [24, 16, 12]);
    assert_eq!(
        "deepseek".parse::<Family>().unwrap_err().to_string(),
        "no model family is named \"deepseek\", expected deepseek-v4.1, qwen3.8 or longcat-flash"
    );
}

#[test]
fn families_are_not_guessed() {
    assert_eq!(Family::detect(std::iter::empty()), Ok(None));
    let others = ["model.embed_tokens.weight", "draft.layers.1.engram.embed.weight", "layers.1.engram.embed.scale"];
    assert_eq!(Family::detect(others.into_iter()), Ok(None));
    let error = Family::detect(["model.oe_embed_tokens0.weight", "x", "layers.1.engram.embed.weight"].into_iter());
    assert_eq!(
        error.unwrap_err().to_string(),
        "tensor \"model.oe_embed_tokens0.weight\" is of longcat-flash but \"layers.1.engram.embed.weight\" is of \
         deepseek-v4.1, expected tables of one family"
    );
    let near = "; near them are \"draft.layers.1.engram.embed.weight\" and \"layers.1.engram.embed.scale\"";
    for (family, (expected, near)) in Family::ALL.into_iter().zip([
        ("layers.1.engram.embed.weight", near),
        ("model.language_model.layers.1.ple.ple_embedding.ngram_embedding.shard_0.weight", ""),
        ("model.ngram_embeddings.embedders.0.weight", ""),
    ]) {
        let error = family.tables(others.into_iter(), None).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("no tensor is a table of {family}, expected names such as {expected:?}{near}")
        );
    }
}

#[test]
fn layers_are_in_order_of_their_numbers() {
    let names = ["model.layers.14.engram.embed.weight", "model.layers.2.engram.embed.weight"];
    let tables = Family::DeepseekV41.tables(names.into_iter(), None).unwrap();
    assert_eq!(tables.iter().map(|table| table.name.as_str()).collect::<Vec<_>>(), [names[1], names[0]]);
    assert_eq!(tables[0].parts, [names[1]]);
}

#[test]
fn one_layer_has_one_table() {
    let (plain, wrapped) = ("layers.1.engram.embed.weight", "model.layers.1.engram.embed.weight");
    let says = "are both of the table of layer 1, expected one of them";
    for names in [[plain, wrapped], [plain, "layers.01.engram.embed.weight"]] {
        let error = Family::DeepseekV41.tables(names.into_iter(), None).unwrap_err().to_string();
        assert!(error.contains(says) && names.iter().all(|name| error.contains(name)), "{error}");
    }
    let error = Family::DeepseekV41.tables([plain, plain].into_iter(), None).unwrap_err();
    assert!(matches!(error, FamilyError::Duplicate { .. }), "{error}");
    let sparse: Vec<_> = (0..12).map(|part| format!("model.oe_embed_tokens{part}.weight")).collect();
    let table = only(Family::LongcatFlash);
    let both = names(&table).chain(sparse.iter().map(String::as_str));
    let error = Family::LongcatFlash.tables(both, None).unwrap_err().to_string();
    assert!(error.contains("are both of the table of the model"), "{error}");
    assert_eq!(
        Family::LongcatFlash.tables(sparse.iter().map(String::as_str), None),
        Ok(vec![FamilyTable { name: "model.oe_embed_tokens.weight".into(), parts: sparse.clone() }])
    );
}

#[test]
fn tables_that_are_not_whole_are_refused() {
    for (family, missing) in [(Family::Qwen38, 7), (Family::Qwen38, 127), (Family::LongcatFlash, 0)] {
        let table = only(family);
        let parts = table.parts.len() as u64;
        let told = if family == Family::Qwen38 { " as split_ngram_parts in config.json has it" } else { "" };
        let gone = &table.parts[missing];
        let error = family.tables(names(&table).filter(|name| name != gone), Some(128)).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "table {:?} has {} parts, expected {parts}{told}: tensor {gone:?} is missing",
                table.name,
                parts - 1
            )
        );
        // The same number in another spelling: alone it stands for the part, beside it it is one too many.
        let number = gone.rfind(missing.to_string().as_str()).unwrap();
        let spelled = format!("{}0{}", &gone[..number], &gone[number..]);
        let with = |names: Vec<&str>| family.tables(names.into_iter().chain([spelled.as_str()]), Some(128));
        let tables = with(names(&table).filter(|name| name != gone).collect()).unwrap();
        assert_eq!(tables[0].parts[missing], spelled);
        let error = with(names(&table).collect()).unwrap_err().to_string();
        assert!(error.contains(&format!("are both part {missing} of table {:?}", table.name)), "{error}");
        assert!(error.contains(&format!("{gone:?}")) && error.contains(&format!("{spelled:?}")), "{error}");
        // One past the end, and one that no integer holds.
        for past in [parts.to_string(), "99999999999999999999999".into()] {
            let past = format!("{}{past}.weight", &gone[..number]);
            let error = family.tables(names(&table).chain([past.as_str(), &past]), Some(128)).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "tensor {past:?} is beyond the last part of table {:?}, expected numbers from 0 to {}{told}",
                    table.name,
                    parts - 1
                )
            );
        }
    }
    // Some are missing and one is spelled twice: the count alone would be right.
    let table = only(Family::LongcatFlash);
    let twice = names(&table).skip(1).chain(["model.ngram_embeddings.embedders.011.weight"]);
    assert!(matches!(Family::LongcatFlash.tables(twice, None), Err(FamilyError::Duplicate { .. })));
}

#[test]
fn qwen_has_as_many_shards_as_its_config_says_or_a_run_of_them() {
    let base = "model.layers.1.ple.ple_embedding.ngram_embedding";
    let shards = |numbers: &mut dyn Iterator<Item = u64>, end: &str| -> Vec<String> {
        numbers.map(|number| format!("{base}.shard_{number}{end}")).collect()
    };
    let tables = |names: &[String], parts| Family::Qwen38.tables(names.iter().map(String::as_str), parts);
    for end in [".weight", ""] {
        for count in [1, 2, 8, 128, 512] {
            let names = shards(&mut (0..count), end);
            let table = FamilyTable { name: format!("{base}{end}"), parts: names.clone() };
            for parts in [Some(count), None] {
                assert_eq!(tables(&names, parts), Ok(vec![table.clone()]));
            }
            let error = tables(&names, Some(count + 1)).unwrap_err();
            let says = format!("expected {} as split_ngram_parts in config.json has it", count + 1);
            assert!(matches!(error, FamilyError::MissingPart { .. }) && error.to_string().contains(&says), "{error}");
            assert!(matches!(tables(&names, Some(count - 1)), Err(FamilyError::PastLastPart { .. })));
        }
        // Whatever shifts the ids: a gap, a first number other than 0, a number twice.
        for (numbers, missing) in [(vec![0, 1, 3], 2), (vec![1, 2, 3], 0), (vec![u64::MAX], 0)] {
            let error = tables(&shards(&mut numbers.into_iter(), end), None).unwrap_err();
            let says = format!("tensor {:?} is missing", format!("{base}.shard_{missing}{end}"));
            assert!(error.to_string().ends_with(&says), "{error}");
        }
        let twice = [shards(&mut (0..2), end), vec![format!("{base}.shard_00{end}")]].concat();
        assert!(matches!(tables(&twice, None), Err(FamilyError::Duplicate { .. })));
    }
    // Put together in one tensor, whatever the config says.
    let fused = vec![format!("{base}.weight")];
    let table = FamilyTable { name: fused[0].clone(), parts: fused.clone() };
    assert_eq!(tables(&fused, None), Ok(vec![table.clone()]));
    assert_eq!(tables(&fused, Some(128)), Ok(vec![table.clone()]));
    // One layer has one of these.
    for other in [fused, shards(&mut (0..2), "")] {
        let both = [shards(&mut (0..2), ".weight"), other].concat();
        assert!(matches!(tables(&both, None), Err(FamilyError::Duplicate { .. })));
    }
    // The rows at the end that belong to no head are fewer than the shards.
    let sizes = primes_from(1_000_003, 16);
    let heads: u64 = sizes.iter().sum();
    for (parts, rows) in [(8, heads.next_multiple_of(8)), (1, heads + 90)] {
        let names = if parts == 1 { table.parts.clone() } else { shards(&mut (0..parts), "") };
        let table = tables(&names, None).unwrap().remove(0);
        let orders = Family::Qwen38.orders(&table, &vec![rows / parts; parts as usize]).unwrap();
        assert_eq!((orders[0].rows.end, orders[1].rows.end), (sizes[..8].iter().sum(), rows));
    }
}

#[test]
fn orders_of_the_published_tables() {
    let orders = |family: Family, table: usize| {
        let PublishedTable { table, part_rows, .. } = family.published().swap_remove(table);
        let orders = family.orders(&table, &part_rows).unwrap();
        let heads = family.head_rows(&table, &part_rows).unwrap();
        assert_eq!(heads.len(), family.rows_per_token() as usize);
        assert!(heads.windows(2).all(|two| two[0].rows.end == two[1].rows.start));
        (orders.into_iter().map(|order| (order.order, order.rows)).collect::<Vec<_>>(), heads)
    };
    // Heads of layer 14 go on with the primes where those of layer 1 end.
    let (first, first_heads) = orders(Family::DeepseekV41, 0);
    assert_eq!(first, [(2, 0..128_000_880), (3, 128_000_880..256_002_934), (4, 256_002_934..384_006_168)]);
    let (second, second_heads) = orders(Family::DeepseekV41, 1);
    assert_eq!((second[0].1.start, second[2].1.end), (0, 384_016_682));
    let sizes: Vec<u64> = first_heads.iter().chain(&second_heads).map(|head| head.rows.end - head.rows.start).collect();
    let primes: Vec<u64> = (16_000_000..).filter(|n| primes::is_prime(*n)).take(48).collect();
    assert_eq!(sizes, primes);
    assert_eq!((first_heads[8].order, first_heads[8].head), (3, 0));

    // 16 heads end at row 320,001,446; the 90 rows after them go with the last order.
    let (qwen, heads) = orders(Family::Qwen38, 0);
    assert_eq!(heads[15].rows.end, 320_001_446);
    assert_eq!(qwen, [(2, 0..160_000_374), (3, 160_000_374..320_001_536)]);
    // A head begins within a shard: where each shard is coded on its own, it has rows of two orders.
    assert_ne!(heads[7].rows.end % 2_500_012, 0);

    let (longcat, heads) = orders(Family::LongcatFlash, 0);
    let size = 10_223_616;
    assert_eq!(longcat[0], (2, 0..4 * size + 16));
    assert_eq!(longcat[1], (3, 4 * size + 16..8 * size + 64));
    assert_eq!(longcat[2], (4, 8 * size + 64..12 * size + 144));
    assert_eq!((heads[5].order, heads[5].head, heads[5].rows.clone()), (3, 1, 5 * size + 25..6 * size + 36));
}

#[test]
fn rows_that_are_not_those_of_heads_are_refused() {
    let deepseek = FamilyTable { name: "t".into(), parts: vec!["t".into()] };
    let error = Family::DeepseekV41.orders(&deepseek, &[384_006_169]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "table \"t\" has 384006169 rows: 0 runs of 24 consecutive primes have this sum, expected one, so where its \
         orders begin is not known"
    );
    let qwen = only(Family::Qwen38);
    // Heads so small that the padding could hide a whole step to the next run.
    let error = Family::Qwen38.orders(&qwen, &[20; 128]).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "table {:?} has 2560 rows: 2 runs of 16 consecutive primes have this sum or up to 127 less, expected one, \
             so where its orders begin is not known",
            qwen.name
        )
    );
    for (family, table, rows) in [
        (Family::DeepseekV41, &deepseek, &[5, 5][..]),
        (Family::Qwen38, &qwen, &[5; 127]),
        (Family::LongcatFlash, &deepseek, &[5]),
    ] {
        assert!(matches!(family.orders(table, rows), Err(FamilyError::Parts { .. })), "{family}");
    }
    let error = Family::LongcatFlash.orders(&only(Family::LongcatFlash), &[u64::MAX / 8; 12]).unwrap_err();
    assert_eq!(error.to_string(), "table \"model.ngram_embeddings.embedders.weight\" has 2^64 rows or more");
    assert!(matches!(Family::DeepseekV41.orders(&deepseek, &[0]), Err(FamilyError::Heads { found: 0, .. })));
    assert!(matches!(Family::DeepseekV41.orders(&deepseek, &[u64::MAX]), Err(FamilyError::Heads { .. })));
}

#[test]
fn rates_by_order_are_runs_of_rows() {
    let rate = |text: &str| text.parse::<Rate>().unwrap();
    let PublishedTable { table, part_rows, .. } = Family::DeepseekV41.published().remove(0);
    let runs = |family: Family, table, part_rows, by_order: &[(u32, &str)]| {
        let by_order = by_order.iter().map(|(order, text)| (*order, rate(text))).collect();
        family.rates(table, part_rows, rate("2"), &by_order)
    };
    let pairs = |by_order: &[(u32, &str)]| {
        let runs = runs(Family::DeepseekV41, &table, &part_rows, by_order).unwrap();
        runs.into_iter().map(|run| (run.rows, run.rate.to_string())).collect::<Vec<_>>()
    };
    let pair = |rows, rate: &str| (rows, rate.to_string());
    let (first, second, third) = (128_000_880, 128_002_054, 128_003_234);
    assert_eq!(pairs(&[]), [pair(384_006_168, "2")]);
    assert_eq!(pairs(&[(2, "3"), (3, "3"), (4, "3")]), [pair(384_006_168, "3")]);
    assert_eq!(pairs(&[(2, "3"), (4, "1.5")]), [pair(first, "3"), pair(second, "2"), pair(third, "1.5")]);
    assert_eq!(pairs(&[(4, "1.5")]), [pair(first + second, "2"), pair(third, "1.5")]);

    let qwen = only(Family::Qwen38);
    let error = runs(Family::Qwen38, &qwen, &[2_500_012; 128], &[(4, "2")]).unwrap_err();
    assert_eq!(error.to_string(), "tables of qwen3.8 have no rows of 4-grams, expected an order among [2, 3]");
    // Where all rows have one rate it does not matter whether orders can be told apart.
    let rows = |by_order| runs(Family::DeepseekV41, &table, &[100], by_order);
    assert_eq!(rows(&[]).unwrap().len(), 1);
    assert!(matches!(rows(&[(4, "1")]), Err(FamilyError::Heads { .. })));
    assert!(matches!(runs(Family::DeepseekV41, &table, &[], &[]), Err(FamilyError::Parts { .. })));
}

/// `count` primes from `start` on.
fn primes_from(start: u64, count: usize) -> Vec<u64> {
    (start..).filter(|n| primes::is_prime(*n)).take(count).collect()
}

proptest! {
    #[test]
    fn heads_are_found_whatever_the_parts(
        start in 2..1u64 << 40,
        padding in 0..128u64,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 127),
    ) {
        let sizes = primes_from(start, 16);
        let heads: u64 = sizes.iter().sum();
        // 128 parts of any sizes, some of them empty.
        let rows = heads + padding;
        let mut ends: Vec<u64> = cuts.iter().map(|cut| cut.index(rows as usize + 1) as u64).chain([rows]).collect();
        ends.sort_unstable();
        let part_rows: Vec<u64> = std::iter::once(&0).chain(&ends).zip(&ends).map(|(start, end)| end - start).collect();
        let table = only(Family::Qwen38);
        match Family::Qwen38.orders(&table, &part_rows) {
            Ok(orders) => {
                let second = sizes[..8].iter().sum::<u64>();
                prop_assert_eq!(&orders[0], &OrderRows { order: 2, rows: 0..second });
                prop_assert_eq!(&orders[1], &OrderRows { order: 3, rows: second..rows });
                prop_assert_eq!(orders.len(), 2);
            }
            // The next run of primes, or the one before, is within the padding.
            Err(FamilyError::Heads { found, .. }) => prop_assert!(found >= 2),
            Err(error) => prop_assert!(false, "{error}"),
        }
        let table = FamilyTable { name: "t".into(), parts: vec!["t".into()] };
        let sizes = primes_from(start, 24);
        let orders = Family::DeepseekV41.orders(&table, &[sizes.iter().sum()]).unwrap();
        let ends: Vec<u64> = [8, 16, 24].iter().map(|heads| sizes[..*heads].iter().sum()).collect();
        prop_assert_eq!(orders.iter().map(|order| order.order).collect::<Vec<_>>(), [2, 3, 4]);
        prop_assert_eq!(orders.iter().map(|order| order.rows.end).collect::<Vec<_>>(), ends);
    }

    #[test]
    fn parts_are_in_order_however_they_come(shift in 0..128usize, stride in prop::sample::select(vec![1usize, 3, 37, 127])) {
        let table = only(Family::Qwen38);
        let names = (0..128).map(|i| table.parts[(i * stride + shift) % 128].as_str());
        prop_assert_eq!(Family::Qwen38.tables(names, Some(128)), Ok(vec![table.clone()]));
    }
}
