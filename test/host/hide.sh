# Drops what the NIC $1 receives before the kernel sees it. AF_PACKET, by which the
# userspace datapath reads, sees the frames before this chain does.
nft -f - <<NFT
table netdev hide-$1
delete table netdev hide-$1
table netdev hide-$1 {
	chain in {
		type filter hook ingress device "$1" priority 0; policy drop;
	}
}
NFT
