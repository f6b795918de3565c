//! `ullage rebuild` from copies that are not all that they seem: of pools without attributes.

use crate::rebuild::{expect, fill, pools, rebuild, two};

#[test]
fn pools_that_were_copied_without_attributes_are_rebuilt_whole() {
    let mut space = two();
    fill(&space, 0, 6);
    space.down_and_check();
    pools(&space).iter().for_each(|pool| crate::repair::without_attributes(pool));
    let report = rebuild(&mut space, &[]);
    assert_eq!((&report["adopted"], &report["dropped"]), (&0.into(), &0.into()), "{report}");
    for n in 0..6 {
        expect(&space, n);
    }
    space.compare_du(&space.mount);
    space.down_and_check();
}
