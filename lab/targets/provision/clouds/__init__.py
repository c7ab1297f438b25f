"""Clusters that a cloud sells, made and removed by the cloud's own command line: `just up doks`, `just up eks-a1`.

cli      one such program: asked, or told to do something, its faults as place, fault, remedy
doks     DigitalOcean, by doctl                eks     AWS, by eksctl
flow     what `just up` and `just down` do with either: show, ask, do, verify
asking   the yes                               prices  what the machines cost roughly

Refuses to wait where the cloud's own program does. Knows no variant: what is made here is measured with `--target remote`.
"""
