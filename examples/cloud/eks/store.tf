# The bucket for packages, three roles for those that use it (docs/security.md), and registries of images.

locals {
  prefix = "packages"
  # Which ServiceAccounts of the release "headrace" in the namespace "headrace" have which role.
  accounts = {
    read    = ["headrace-gateway", "headrace-triton", "headrace-evaluate"]
    convert = ["headrace-conversion"]
    decide  = ["headrace-controller"]
  }
  role_of = merge([for role, names in local.accounts : { for name in names : name => role }]...)
  images  = ["gateway", "controller", "conversion", "stats", "mlflow", "triton", "triton-gpu"]
}

resource "aws_s3_bucket" "packages" {
  bucket        = var.bucket
  force_destroy = var.force_destroy
}

resource "aws_s3_bucket_public_access_block" "packages" {
  bucket                  = aws_s3_bucket.packages.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

# By S3's own key: one of KMS would need rights of each role on it.
resource "aws_s3_bucket_server_side_encryption_configuration" "packages" {
  bucket = aws_s3_bucket.packages.id
  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm = "AES256"
    }
  }
}

resource "aws_s3_bucket_versioning" "packages" {
  bucket = aws_s3_bucket.packages.id
  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "packages" {
  bucket = aws_s3_bucket_versioning.packages.bucket
  rule {
    id     = "what-was-deleted"
    status = "Enabled"
    filter {}
    noncurrent_version_expiration {
      noncurrent_days = 30
    }
    abort_incomplete_multipart_upload {
      days_after_initiation = 7
    }
  }
}

resource "aws_iam_role" "store" {
  for_each           = local.accounts
  name               = "${var.name}-${each.key}"
  assume_role_policy = local.by_pods
}

resource "aws_iam_role_policy" "store" {
  for_each = local.accounts
  name     = "packages"
  role     = aws_iam_role.store[each.key].name
  policy = templatefile("${path.module}/policies/${each.key}.json", {
    bucket = aws_s3_bucket.packages.id
    prefix = local.prefix
  })
}

resource "aws_eks_pod_identity_association" "store" {
  for_each        = local.role_of
  cluster_name    = aws_eks_cluster.main.name
  namespace       = "headrace"
  service_account = each.key
  role_arn        = aws_iam_role.store[each.value].arn
}

resource "aws_ecr_repository" "images" {
  for_each             = toset(local.images)
  name                 = "${var.name}/headrace-${each.key}"
  image_tag_mutability = "IMMUTABLE"
  force_delete         = var.force_destroy
  image_scanning_configuration {
    scan_on_push = true
  }
}
