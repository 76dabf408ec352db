# EKS: who administers it, its add-ons, a group of nodes for all that needs no GPU, and one with GPUs.

locals {
  # Add-ons that ask AWS: their account and their policy.
  addon_roles = {
    vpc-cni            = { account = "aws-node", policy = "AmazonEKS_CNI_Policy" }
    aws-ebs-csi-driver = { account = "ebs-csi-controller-sa", policy = "service-role/AmazonEBSCSIDriverPolicy" }
  }
  addon_settings = {
    vpc-cni            = { enableNetworkPolicy = "true" }
    aws-ebs-csi-driver = { defaultStorageClass = { enabled = true } }
  }
  by_pods = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = ["sts:AssumeRole", "sts:TagSession"]
      Principal = { Service = "pods.eks.amazonaws.com" }
    }]
  })
}

resource "aws_iam_role" "cluster" {
  name = "${var.name}-cluster"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = ["sts:AssumeRole", "sts:TagSession"]
      Principal = { Service = "eks.amazonaws.com" }
    }]
  })
}

resource "aws_iam_role_policy_attachment" "cluster" {
  role       = aws_iam_role.cluster.name
  policy_arn = "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"
}

resource "aws_eks_cluster" "main" {
  name     = var.name
  version  = "1.35"
  role_arn = aws_iam_role.cluster.arn

  # audit: who decided which rollout (docs/security.md)
  enabled_cluster_log_types     = ["audit", "authenticator"]
  bootstrap_self_managed_addons = false

  access_config {
    authentication_mode                         = "API"
    bootstrap_cluster_creator_admin_permissions = false
  }
  vpc_config {
    subnet_ids              = aws_subnet.private[*].id
    endpoint_private_access = true
    endpoint_public_access  = true
    public_access_cidrs     = var.admin_cidrs
  }
  kubernetes_network_config {
    service_ipv4_cidr = "172.20.0.0/16"
  }
  depends_on = [aws_iam_role_policy_attachment.cluster]
}

resource "aws_eks_access_entry" "admins" {
  for_each      = var.admins
  cluster_name  = aws_eks_cluster.main.name
  principal_arn = each.value
}

resource "aws_eks_access_policy_association" "admins" {
  for_each      = var.admins
  cluster_name  = aws_eks_cluster.main.name
  principal_arn = aws_eks_access_entry.admins[each.key].principal_arn
  policy_arn    = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
  access_scope {
    type = "cluster"
  }
}

resource "aws_iam_role" "addons" {
  for_each           = local.addon_roles
  name               = "${var.name}-${each.key}"
  assume_role_policy = local.by_pods
}

resource "aws_iam_role_policy_attachment" "addons" {
  for_each   = local.addon_roles
  role       = aws_iam_role.addons[each.key].name
  policy_arn = "arn:aws:iam::aws:policy/${each.value.policy}"
}

# Nodes are ready only with these.
resource "aws_eks_addon" "nodes" {
  for_each             = toset(["eks-pod-identity-agent", "kube-proxy", "vpc-cni"])
  cluster_name         = aws_eks_cluster.main.name
  addon_name           = each.key
  configuration_values = contains(keys(local.addon_settings), each.key) ? jsonencode(local.addon_settings[each.key]) : null

  dynamic "pod_identity_association" {
    for_each = contains(keys(local.addon_roles), each.key) ? [local.addon_roles[each.key].account] : []
    content {
      service_account = pod_identity_association.value
      role_arn        = aws_iam_role.addons[each.key].arn
    }
  }
  depends_on = [aws_iam_role_policy_attachment.addons]
}

# These are ready only with nodes. metrics-server is for the gateways' autoscaler.
resource "aws_eks_addon" "pods" {
  for_each             = toset(["aws-ebs-csi-driver", "coredns", "metrics-server"])
  cluster_name         = aws_eks_cluster.main.name
  addon_name           = each.key
  configuration_values = contains(keys(local.addon_settings), each.key) ? jsonencode(local.addon_settings[each.key]) : null

  dynamic "pod_identity_association" {
    for_each = contains(keys(local.addon_roles), each.key) ? [local.addon_roles[each.key].account] : []
    content {
      service_account = pod_identity_association.value
      role_arn        = aws_iam_role.addons[each.key].arn
    }
  }
  depends_on = [aws_eks_node_group.general, aws_iam_role_policy_attachment.addons]
}

resource "aws_iam_role" "nodes" {
  name = "${var.name}-nodes"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "ec2.amazonaws.com" }
    }]
  })
}

resource "aws_iam_role_policy_attachment" "nodes" {
  for_each   = toset(["AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly"])
  role       = aws_iam_role.nodes.name
  policy_arn = "arn:aws:iam::aws:policy/${each.key}"
}

resource "aws_eks_node_group" "general" {
  cluster_name    = aws_eks_cluster.main.name
  node_group_name = "general"
  node_role_arn   = aws_iam_role.nodes.arn
  subnet_ids      = aws_subnet.private[*].id
  ami_type        = "AL2023_x86_64_STANDARD"
  instance_types  = ["m7i.xlarge"]
  disk_size       = 100

  scaling_config {
    min_size     = 2
    desired_size = 3
    max_size     = 6
  }
  depends_on = [aws_eks_addon.nodes, aws_iam_role_policy_attachment.nodes]
}

# One GPU a node. Its driver is the AMI's; the device plugin is installed by hand.
resource "aws_eks_node_group" "gpu" {
  cluster_name    = aws_eks_cluster.main.name
  node_group_name = "gpu"
  node_role_arn   = aws_iam_role.nodes.arn
  subnet_ids      = aws_subnet.private[*].id
  ami_type        = "AL2023_x86_64_NVIDIA"
  instance_types  = ["g5.xlarge"]
  disk_size       = 200 # NVIDIA's image of Triton has some 20 GB, unpacked
  labels          = { "nvidia.com/gpu.present" = "true" }

  taint {
    key    = "nvidia.com/gpu"
    value  = "true"
    effect = "NO_SCHEDULE"
  }
  scaling_config {
    min_size     = 0
    desired_size = 1
    max_size     = 2
  }
  depends_on = [aws_eks_addon.nodes, aws_iam_role_policy_attachment.nodes]
}
